package preemption

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
	u.begin(hold.Holder{Group: "x"}, pods("a", "b", "c"))
	if n := u.Victims(hold.Holder{Group: "x"}); n != 3 || u.Victims(hold.Holder{Group: "y"}) != 0 {
		t.Errorf("%d victims of x, %d of y; want 3 and none", n, u.Victims(hold.Holder{Group: "y"}))
	}
	u.gone("a", now)
	u.gone("stranger", now)
	u.spared("b")
	u.refuse("c", now)
	if n := u.Victims(hold.Holder{Group: "x"}); n != 0 {
		t.Errorf("%d victims have not ended, want none", n)
	}
	if all := u.all(); len(all) != 1 || !all["a"] {
		t.Errorf("ending, or ended just now: %v, want a", all)
	}
	if refused := u.refusals(now); len(refused) != 1 || !refused["c"] {
		t.Errorf("refused: %v, want c", refused)
	}
	later := now.Add(time.Hour)
	u.begin(hold.Holder{Group: "y"}, pods("d"))
	u.gone("d", later)
	if all := u.all(); len(all) != 1 || !all["d"] || len(u.refusals(later)) != 0 {
		t.Errorf("an hour later: %v, refused %v; want d and nobody", all, u.refusals(later))
	}
}
