"""Questions: public facts about tables, text to plan, what a plan costs and how it is explained."""
