from .base import Attack as Attack, Outcome as Outcome, Published as Published, Release as Release, Score as Score
