package evictions

import (
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// TestEvictedForTwo: a gang that lost pods for two preemptors is in the cool-down of the other one for each of them.
func TestEvictedForTwo(t *testing.T) {
	u, now, gang := NewActivePreemptions(), time.Now(), members("g", 2, 1, "n0")
	u.AddVictims(known{}, preemptionOf("x"), gang[:1])
	u.AddVictims(known{}, preemptionOf("y"), gang[1:])
	u.RecordEnd(gang[0].UID, now)
	u.RecordEnd(gang[1].UID, now.Add(time.Second))
	of := OwnerOf(known{}, gang[0])
	if at := u.LastEvicted(of, hold.Holder{Group: "x"}); !at.Equal(now.Add(time.Second)) {
		t.Errorf("for x it was last evicted for others at %s, want when it lost a pod for y", at)
	}
	if at := u.LastEvicted(of, hold.Holder{Group: "y"}); !at.Equal(now) {
		t.Errorf("for y it was last evicted for others at %v, want when it lost a pod for x", at)
	}
}
