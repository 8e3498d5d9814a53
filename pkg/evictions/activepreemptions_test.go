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

// preemptionOf returns a preemption that stands.
func preemptionOf(group string) *Preemption {
	return &Preemption{Holder: hold.Holder{Group: group}, Stands: func() bool { return true }}
}

func TestUnderway(t *testing.T) {
	u, now := NewActivePreemptions(), time.Now()
	u.AddVictims(known{}, preemptionOf("x"), pods("a", "b", "c"))
	if n := u.Victims(hold.Holder{Group: "x"}); n != 3 || u.Victims(hold.Holder{Group: "y"}) != 0 {
		t.Errorf("%d victims of x, %d of y; want 3 and none", n, u.Victims(hold.Holder{Group: "y"}))
	}
	u.RecordEnd("a", now)
	u.RecordEnd("stranger", now)
	u.ReleaseVictims(nil, "b")
	u.recordRefusal("c", now, true)
	if n := u.Victims(hold.Holder{Group: "x"}); n != 0 {
		t.Errorf("%d victims have not ended, want none", n)
	}
	if all := u.AllVictims(); len(all) != 1 || !all["a"] {
		t.Errorf("ending, or ended just now: %v, want a", all)
	}
	if refused := u.Refusals(now); len(refused) != 1 || !refused["c"] {
		t.Errorf("refused: %v, want c", refused)
	}
	later := now.Add(time.Hour)
	u.AddVictims(known{}, preemptionOf("y"), pods("d"))
	u.RecordEnd("d", later)
	u.dropOldEnded(later)
	if all := u.AllVictims(); len(all) != 1 || !all["d"] || len(u.Refusals(later)) != 0 {
		t.Errorf("an hour later: %v, refused %v; want d and nobody", all, u.Refusals(later))
	}
}

// TestAdopt: each victim is evicted for one preemption. One that takes the places of others adopts their victims, and
// awaits them in their stead; one that has found free places adopts none. Who evicts a victim releases it, and who
// awaits it is told.
func TestAdopt(t *testing.T) {
	type adopts struct {
		by       string
		outranks []hold.Holder
	}
	of := func(names ...string) (list []hold.Holder) {
		for _, name := range names {
			list = append(list, hold.Holder{Group: name})
		}
		return list
	}
	for sentence, c := range map[string]struct {
		adopts []adopts
		want   string
	}{
		"nobody":                           {nil, "first"},
		"its own preemptor, anew":          {[]adopts{{"first", nil}}, "first"},
		"one that takes its places":        {[]adopts{{"high", of("first")}}, "high"},
		"one that takes those, in turn":    {[]adopts{{"high", of("first")}, {"higher", of("high")}}, "higher"},
		"one that takes those of another":  {[]adopts{{"high", of("first")}, {"higher", of("first")}}, "high"},
		"one that took them, anew":         {[]adopts{{"high", of("first")}, {"high", nil}}, "high"},
		"one that has found free places":   {[]adopts{{"other", nil}}, "first"},
		"one that outranks another":        {[]adopts{{"other", of("third")}}, "first"},
		"one that outranks it and another": {[]adopts{{"high", of("third", "first")}}, "high"},
	} {
		t.Run(sentence, func(t *testing.T) {
			u, told := NewActivePreemptions(), ""
			u.OnRelease(func(_ *Preemption, preemptions []*Preemption, nodes []string) {
				told += preemptions[0].Holder.Group + " on " + nodes[0]
			})
			victims, first := members("v", 2, 0, "n0"), preemptionOf("first")
			last := first
			u.AddVictims(known{}, first, victims)
			for _, one := range c.adopts {
				p := preemptionOf(one.by)
				if !u.AdoptVictims(p, []types.UID{victims[0].UID, victims[1].UID}, one.outranks) {
					t.Fatal("there are no such victims")
				}
				if p.Holder.Group == c.want {
					last = p
				}
			}
			u.AddVictims(known{}, first, victims) // by whom they are evicted
			for _, name := range []string{"first", "high", "higher", "other", "third"} {
				want := 0
				if name == c.want {
					want = 2
				}
				if n := u.Victims(hold.Holder{Group: name}); n != want {
					t.Errorf("%s awaits %d victims, want %d", name, n, want)
				}
			}
			if got := u.NeededBy(victims); got != last {
				t.Errorf("needed by %+v, want %s", got, c.want)
			}
			last.Stands = func() bool { return false }
			if got := u.NeededBy(victims); got != nil {
				t.Errorf("needed by %s, which needs nothing any more", got.Holder)
			}
			if last != first {
				u.ReleaseVictims(last, victims[0].UID)
				if told != "" || len(u.AllVictims()) != 2 {
					t.Error("one that does not evict a victim has released it")
				}
			}
			u.ReleaseVictims(first, victims[0].UID)
			if told != c.want+" on n0" || len(u.AllVictims()) != 1 {
				t.Errorf("told: %q, want %s; %d victims are left, want one", told, c.want, len(u.AllVictims()))
			}
			if u.AdoptVictims(preemptionOf("late"), []types.UID{victims[1].UID, victims[0].UID}, of(c.want)) || u.Victims(of(c.want)[0]) != 1 {
				t.Error("a victim is adopted beside one that stays")
			}
		})
	}
}

// TestNeededByNobodyOnceEnded: once the victim that a preemptor has adopted has ended, the preemptor needs none of the
// victims that were chosen with it.
func TestNeededByNobodyOnceEnded(t *testing.T) {
	u, victims := NewActivePreemptions(), members("v", 2, 0, "n0")
	first, high := preemptionOf("first"), preemptionOf("high")
	first.Stands = func() bool { return false }
	u.AddVictims(known{}, first, victims)
	if !u.AdoptVictims(high, []types.UID{victims[0].UID}, []hold.Holder{first.Holder}) || u.NeededBy(victims) != high {
		t.Fatal("not needed by who has adopted one")
	}
	u.RecordEnd(victims[0].UID, time.Now())
	if by := u.NeededBy(victims); by != nil {
		t.Errorf("needed by %s, whose place is free", by.Holder)
	}
}

// TestOldEvictions: evictions are remembered as long as any cool-down is.
func TestOldEvictions(t *testing.T) {
	u, now, gang := NewActivePreemptions(), time.Now(), members("g", 1, 1, "n0")
	u.AddVictims(known{}, preemptionOf("x"), gang)
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
	u.AddVictims(known{}, preemptionOf("x"), pods("a", "b", "c"))
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
	u.ReleaseVictims(nil, "c")
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
	if u.RecordEnd("b", now) || len(u.AllVictims()) > 0 {
		t.Error("it was a victim long ago")
	}
}

// TestFreed: the time when a victim of a preemptor last ended is remembered for a while; a spared victim does not
// count.
func TestFreed(t *testing.T) {
	u, now := NewActivePreemptions(), time.Now()
	x, y := hold.Holder{Group: "x"}, hold.Holder{Group: "y"}
	u.AddVictims(known{}, preemptionOf("x"), pods("a", "b"))
	u.AddVictims(known{}, preemptionOf("y"), pods("c", "d"))
	u.ReleaseVictims(nil, "c")
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
