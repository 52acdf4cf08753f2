"""Which columns single people out, and what somebody who knows them could do."""
