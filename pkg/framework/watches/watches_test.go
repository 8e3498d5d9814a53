package watches

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"
)

func pod(name, uid, revision string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: revision}}
}

func informer() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cachetest.NewFakeControllerSource(), &v1.Pod{}, 0, cache.Indexers{})
}

// TestHandled: a handler has taken in what it has returned from.
func TestHandled(t *testing.T) {
	var during map[string]string // what counts as taken in while the handler is at work
	all, calls := New(), 0
	look := func() { during = all.All()[0].Handled(); calls++ }
	h := all.Shared("somebody's pods", informer(), cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() }, UpdateFunc: func(_, _ any) { look() }, DeleteFunc: func(any) { look() },
	})
	before := map[string]string{}
	for _, step := range []struct {
		event string
		do    func()
		want  map[string]string
	}{
		{"an addition", func() { h.OnAdd(pod("a", "1", "10"), true) }, map[string]string{"1": "10"}},
		{"another", func() { h.OnAdd(pod("b", "2", "11"), false) }, map[string]string{"1": "10", "2": "11"}},
		{"a change", func() { h.OnUpdate(pod("a", "1", "10"), pod("a", "1", "12")) }, map[string]string{"1": "12", "2": "11"}},
		{"one made again", func() { h.OnUpdate(pod("a", "1", "12"), pod("a", "3", "14")) }, map[string]string{"2": "11", "3": "14"}},
		{"a deletion", func() { h.OnDelete(pod("b", "2", "15")) }, map[string]string{"3": "14"}},
		{"one that was missed", func() { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: pod("a", "3", "14")}) }, map[string]string{}},
	} {
		step.do()
		if diff := cmp.Diff(before, during); diff != "" {
			t.Errorf("during %s (-want +got):\n%s", step.event, diff)
		}
		before = all.All()[0].Handled()
		if diff := cmp.Diff(step.want, before); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.event, diff)
		}
	}
	all.All()[0].Forget()
	h.OnAdd(pod("c", "4", "16"), false)
	if got := all.All()[0].Handled(); len(got) > 0 || calls != 7 {
		t.Errorf("once nobody asks %v is remembered, after %d events of 7", got, calls)
	}
}

func TestOwn(t *testing.T) {
	all, pods := New(), v1.SchemeGroupVersion.WithResource("pods")
	all.Own("somebody's own pods", pods, "status.phase=Succeeded", informer(), cache.ResourceEventHandlerFuncs{})
	all.Shared("somebody's pods", informer(), cache.ResourceEventHandlerFuncs{})
	if resource, selector, own := all.All()[0].Own(); resource != pods || selector != "status.phase=Succeeded" || !own {
		t.Errorf("an informer of its own: %v, %q, %t", resource, selector, own)
	}
	if _, _, own := all.All()[1].Own(); own {
		t.Error("the scheduler's informer is a plugin's own")
	}
}
