package reconciletest_test

import "testing"

// The bodies of the examples are tests, which are run here. internal/house has an outsider paste them.
func TestExampleUnit(t *testing.T)     { testKeeper(t) }
func TestExampleInMemory(t *testing.T) { testGreeter(t) }
func TestExampleCluster(t *testing.T)  { testBudgets(t) }
func TestExampleOutside(t *testing.T)  { testBuckets(t) }
