package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPools: amounts of pools stay apart, add up, and are read with their pool.
func TestPools(t *testing.T) {
	v := Vector{"cpu": 500, "memory": 1 << 30}
	if diff := cmp.Diff(v, v.In("default")); diff != "" {
		t.Errorf("in the default pool (-want +got):\n%s", diff)
	}
	both := Vector{}
	both.Add(v, 1)
	both.Add(v.In("a"), 2)
	if diff := cmp.Diff(map[string]Vector{"default": v, "a": {"cpu": 1000, "memory": 2 << 30}}, both.ByPool()); diff != "" {
		t.Errorf("by pool (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Vector{"cpu": 1500, "memory": 3 << 30}, both.Sum()); diff != "" {
		t.Errorf("sum (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("500m cpu, 1 cpu in pool a, 1Gi memory, 2Gi memory in pool a", both.String()); diff != "" {
		t.Errorf("in words (-want +got):\n%s", diff)
	}
}
