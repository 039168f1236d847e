"""Groups: jobs with parts at several clusters that all start at the same moment, or none of them.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 4 (FlexCo).
"""
