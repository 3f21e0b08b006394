"""Host weight runtime: runtime-ready weights published once per node, mapped by every worker."""
