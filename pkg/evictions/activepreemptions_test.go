package evictions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	u.RecordEnd("a", now)
	u.RecordEnd("stranger", now)
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
	u.RecordEnd("d", later)
	u.dropOldEnded(later)
	if all := u.All(); len(all) != 1 || !all["d"] || len(u.Refusals(later)) != 0 {
		t.Errorf("an hour later: %v, refused %v; want d and nobody", all, u.Refusals(later))
	}
}

// TestReliedOn: who relies on the end of victims keeps their eviction going if they were chosen for it, or for one that
// it outranks.
func TestReliedOn(t *testing.T) {
	of := func(name string) hold.Holder { return hold.Holder{Group: name} }
	type relies struct {
		by       string
		claim    uint64
		outranks []hold.Holder
	}
	for sentence, c := range map[string]struct {
		relies []relies
		want   map[hold.Holder]uint64
	}{
		"nobody":                         {},
		"its own preemptor, anew":        {[]relies{{"first", 2, nil}}, map[hold.Holder]uint64{of("first"): 2}},
		"one that takes its places":      {[]relies{{"high", 2, []hold.Holder{of("first")}}}, map[hold.Holder]uint64{of("high"): 2}},
		"one that takes those, in turn":  {[]relies{{"high", 2, []hold.Holder{of("first")}}, {"higher", 3, []hold.Holder{of("high")}}}, map[hold.Holder]uint64{of("high"): 2, of("higher"): 3}},
		"one that took them, anew":       {[]relies{{"high", 2, []hold.Holder{of("first")}}, {"high", 3, nil}}, map[hold.Holder]uint64{of("high"): 3}},
		"one that has found free places": {[]relies{{"other", 2, nil}}, nil},
		"one that outranks another":      {[]relies{{"other", 2, []hold.Holder{of("third")}}}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			u := NewActivePreemptions()
			u.AddVictims(known{}, of("first"), pods("a", "b"))
			for _, r := range c.relies {
				if !u.RelyOn(of(r.by), r.claim, []types.UID{"a", "b"}, r.outranks) {
					t.Fatal("it cannot rely on victims")
				}
			}
			if diff := cmp.Diff(c.want, u.ReliedOnBy(pods("b")), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("evicted in any case for (-want +got):\n%s", diff)
			}
			u.Release("a")
			for _, r := range c.relies {
				if !u.invalidated[of(r.by)] {
					t.Errorf("%s is not told that a victim stays", r.by)
				}
			}
		})
	}
}

// TestOldEvictions: evictions are remembered as long as any cool-down is.
func TestOldEvictions(t *testing.T) {
	u, now, gang := NewActivePreemptions(), time.Now(), members("g", 1, 1, "n0")
	u.AddVictims(known{}, hold.Holder{Group: "x"}, gang)
	u.RecordEnd(gang[0].UID, now)
	for _, after := range []time.Duration{config.MaxEvictionCooldown, config.MaxEvictionCooldown + 1} {
		u.dropOldEnded(now.Add(after))
		at, known := u.LastEvicted(OwnerOf(known{}, gang[0]), hold.Holder{}), after == config.MaxEvictionCooldown
		if at.IsZero() == known {
			t.Errorf("%s later it was evicted at %s", after, at)
		}
	}
}

// TestRecordEnd: a preemptor awaits a victim until it has ended. For a while, its end may be reported again.
func TestRecordEnd(t *testing.T) {
	u, now, x := NewActivePreemptions(), time.Now(), hold.Holder{Group: "x"}
	u.AddVictims(known{}, x, pods("a", "b", "c"))
	check := func(what string, want int) {
		t.Helper()
		if got := u.Victims(x); got != want {
			t.Errorf("%s: %d have not ended, want %d", what, got, want)
		}
	}
	check("it has begun", 3)
	for range 2 { // a pod may be reported again
		if !u.RecordEnd("a", now) {
			t.Error("it was no victim")
		}
	}
	check("one has ended", 2)
	u.Release("c")
	check("one is spared", 1)
	if u.RecordEnd("c", now) || u.RecordEnd("stranger", now) {
		t.Error("others were victims")
	}
	u.RecordEnd("b", now)
	u.dropOldEnded(now.Add(endedFor))
	if !u.RecordEnd("b", now) {
		t.Error("it was no victim a while ago")
	}
	u.dropOldEnded(now.Add(2 * endedFor))
	if u.RecordEnd("b", now) || len(u.All()) > 0 {
		t.Error("it was a victim long ago")
	}
}

// TestFreed: the time when a victim of a preemptor last ended is remembered for a while; a spared victim does not
// count.
func TestFreed(t *testing.T) {
	u, now := NewActivePreemptions(), time.Now()
	x, y := hold.Holder{Group: "x"}, hold.Holder{Group: "y"}
	u.AddVictims(known{}, x, pods("a", "b"))
	u.AddVictims(known{}, y, pods("c", "d"))
	u.Release("c")
	u.RecordEnd("a", now)
	if at := u.LastFreed(x); !at.Equal(now) || !u.LastFreed(y).IsZero() {
		t.Errorf("x at %s, y at %s; want x now, y never", at, u.LastFreed(y))
	}
	u.RecordEnd("d", now.Add(2*endedFor))
	u.dropOldEnded(now.Add(2 * endedFor))
	if !u.LastFreed(x).IsZero() || u.LastFreed(y).IsZero() {
		t.Errorf("much later: x at %s, y at %s; want y only", u.LastFreed(x), u.LastFreed(y))
	}
}
