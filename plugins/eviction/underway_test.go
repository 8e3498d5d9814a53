package eviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

func pods(uids ...types.UID) []*v1.Pod {
	var list []*v1.Pod
	for _, uid := range uids {
		list = append(list, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	return list
}

func TestUnderway(t *testing.T) {
	u, now := NewUnderway(), time.Now()
	u.Begin(known{}, hold.Holder{Group: "x"}, pods("a", "b", "c"))
	if n := u.Victims(hold.Holder{Group: "x"}); n != 3 || u.Victims(hold.Holder{Group: "y"}) != 0 {
		t.Errorf("%d victims of x, %d of y; want 3 and none", n, u.Victims(hold.Holder{Group: "y"}))
	}
	u.Gone("a", now)
	u.Gone("stranger", now)
	u.Spared("b")
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
	u.Begin(known{}, hold.Holder{Group: "y"}, pods("d"))
	u.Gone("d", later)
	if all := u.All(); len(all) != 1 || !all["d"] || len(u.Refusals(later)) != 0 {
		t.Errorf("an hour later: %v, refused %v; want d and nobody", all, u.Refusals(later))
	}
}

// TestFreed: the time when a victim of a preemptor last ended is remembered for a while; a spared victim does not count.
func TestFreed(t *testing.T) {
	u, now := NewUnderway(), time.Now()
	x, y := hold.Holder{Group: "x"}, hold.Holder{Group: "y"}
	u.Begin(known{}, x, pods("a", "b"))
	u.Begin(known{}, y, pods("c", "d"))
	u.Spared("c")
	u.Gone("a", now)
	if at := u.Freed(x); !at.Equal(now) || !u.Freed(y).IsZero() {
		t.Errorf("x at %s, y at %s; want x now, y never", at, u.Freed(y))
	}
	u.Gone("d", now.Add(2*endedFor))
	if !u.Freed(x).IsZero() || u.Freed(y).IsZero() {
		t.Errorf("much later: x at %s, y at %s; want y only", u.Freed(x), u.Freed(y))
	}
}
