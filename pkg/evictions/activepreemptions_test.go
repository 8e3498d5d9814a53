package evictions

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

func pods(uids ...types.UID) []*v1.Pod {
	var list []*v1.Pod
	for _, uid := range uids {
		list = append(list, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	return list
}

func TestUnderway(t *testing.T) {
	u, now := NewActivePreemptions(), time.Now()
	u.AddVictims(known{}, hold.Holder{Group: "x"}, pods("a", "b", "c"))
	if n := u.Victims(hold.Holder{Group: "x"}); n != 3 || u.Victims(hold.Holder{Group: "y"}) != 0 {
		t.Errorf("%d victims of x, %d of y; want 3 and none", n, u.Victims(hold.Holder{Group: "y"}))
	}
	u.PodDeleted("a", now)
	u.PodDeleted("stranger", now)
	u.Release("b")
	u.refuse("c", now)
	if n := u.Victims(hold.Holder{Group: "x"}); n != 0 {
		t.Errorf("%d victims have not ended, want none", n)
	}
	if all := u.All(); len(all) != 1 || !all["a"] {
		t.Errorf("ending, or ended just now: %v, want a", all)
	}
	if refused := u.Refusals(now); len(refused) != 1 || !refused["c"] {
		t.Errorf("refused: %v, want c", refused)
	}
	later := now.Add(time.Hour)
	u.AddVictims(known{}, hold.Holder{Group: "y"}, pods("d"))
	u.PodDeleted("d", later)
	u.dropOldEnded(later)
	if all := u.All(); len(all) != 1 || !all["d"] || len(u.Refusals(later)) != 0 {
		t.Errorf("an hour later: %v, refused %v; want d and nobody", all, u.Refusals(later))
	}
}

// TestOldEvictions: evictions are remembered as long as any cool-down is.
func TestOldEvictions(t *testing.T) {
	u, now, gang := NewActivePreemptions(), time.Now(), members("g", 1, 1, "n0")
	u.AddVictims(known{}, hold.Holder{Group: "x"}, gang)
	u.PodDeleted(gang[0].UID, now)
	for _, after := range []time.Duration{config.MaxEvictionCooldown, config.MaxEvictionCooldown + 1} {
		u.dropOldEnded(now.Add(after))
		at, known := u.LastEvicted(OwnerOf(known{}, gang[0]), hold.Holder{}), after == config.MaxEvictionCooldown
		if at.IsZero() == known {
			t.Errorf("%s later it was evicted at %s", after, at)
		}
	}
}

// TestAwaited: a preemptor awaits a victim until it has ended and the scheduler's cache no longer has it, whichever is
// known first.
func TestAwaited(t *testing.T) {
	u, now, x := NewActivePreemptions(), time.Now(), hold.Holder{Group: "x"}
	u.AddVictims(known{}, x, pods("a", "b", "c", "d"))
	check := func(what string, awaited, victims int) {
		t.Helper()
		if got := u.Awaited(x); got != awaited || u.Victims(x) != victims {
			t.Errorf("%s: %d are awaited, %d have not ended; want %d, %d", what, got, u.Victims(x), awaited, victims)
		}
	}
	check("it has begun", 4, 4)
	u.PodDeleted("a", now)
	check("one has ended", 4, 3)
	for range 2 { // an informer may say it again
		if !u.LeftCache("a", now) {
			t.Error("it was no victim")
		}
	}
	check("and the cache knows", 3, 3)
	if !u.LeftCache("b", now) {
		t.Error("nor was the next one")
	}
	check("the cache was first to know of another", 2, 2)
	u.PodDeleted("b", now)
	check("then the others", 2, 2)
	u.Release("c")
	check("one is spared", 1, 1)
	if u.LeftCache("c", now) || u.LeftCache("stranger", now) {
		t.Error("others were victims")
	}
	u.PodDeleted("d", now)
	u.dropOldEnded(now.Add(endedFor))
	check("the cache does not know of the last", 1, 0)
	u.dropOldEnded(now.Add(2 * endedFor))
	check("for very long", 0, 0)
}

// TestFreed: the time when a victim of a preemptor last ended is remembered for a while; a spared victim does not
// count.
func TestFreed(t *testing.T) {
	u, now := NewActivePreemptions(), time.Now()
	x, y := hold.Holder{Group: "x"}, hold.Holder{Group: "y"}
	u.AddVictims(known{}, x, pods("a", "b"))
	u.AddVictims(known{}, y, pods("c", "d"))
	u.Release("c")
	u.PodDeleted("a", now)
	if at := u.LastFreed(x); !at.Equal(now) || !u.LastFreed(y).IsZero() {
		t.Errorf("x at %s, y at %s; want x now, y never", at, u.LastFreed(y))
	}
	u.PodDeleted("d", now.Add(2*endedFor))
	u.dropOldEnded(now.Add(2 * endedFor))
	if !u.LastFreed(x).IsZero() || u.LastFreed(y).IsZero() {
		t.Errorf("much later: x at %s, y at %s; want y only", u.LastFreed(x), u.LastFreed(y))
	}
}
