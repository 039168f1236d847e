"""Co-allocations: jobs at several clusters with a common start; all components start or none.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 4 (FlexCo).
"""
