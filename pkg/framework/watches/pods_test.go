package watches

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestListenToPods: listeners get each change by their stages, whatever the order in which they were added.
func TestListenToPods(t *testing.T) {
	all, told := New(), []string{}
	client := fake.NewClientset(pod("a", "1", "10"))
	factory := informers.NewSharedInformerFactory(client, 0)
	listen := func(name string, at Stage) error {
		_, err := all.ListenToPods(factory, at, PodListener{
			Seen: func(before, now *v1.Pod) {
				told = append(told, fmt.Sprintf("%s: %s seen, new %t", name, now.UID, before == nil))
			},
			Gone: func(last *v1.Pod) { told = append(told, fmt.Sprintf("%s: %s gone", name, last.UID)) },
		})
		return err
	}
	for _, one := range []struct {
		name string
		at   Stage
	}{{"nominations", Nominations}, {"gangs", Gangs}, {"shares", Shares}, {"other gangs", Gangs}} {
		must.Succeed(t, listen(one.name, one.at))
	}
	if len(all.All()) != 1 || all.All()[0].Name() != "pods" {
		t.Fatalf("watches: %v, want one, of pods", all.All())
	}
	handler := all.All()[0]
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a pod is made", func() { handler.OnAdd(pod("b", "2", "11"), false) }, []string{"2 seen, new true"}},
		{"a pod changes", func() { handler.OnUpdate(pod("b", "2", "11"), pod("b", "2", "12")) }, []string{"2 seen, new false"}},
		{"one is made again", func() { handler.OnUpdate(pod("b", "2", "12"), pod("b", "3", "14")) }, []string{"2 gone", "3 seen, new true"}},
		{"a pod is deleted", func() { handler.OnDelete(pod("b", "3", "15")) }, []string{"3 gone"}},
		{"a deletion was missed", func() {
			handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/b", Obj: pod("b", "3", "14")})
		}, []string{"3 gone"}},
	} {
		told = nil
		step.do()
		var want []string
		for _, event := range step.want {
			for _, listener := range []string{"gangs", "other gangs", "shares", "nominations"} {
				want = append(want, listener+": "+event)
			}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if err := listen("somebody", Cards); err == nil {
		t.Error("a listener that comes too late is accepted, want an error")
	}
}

// TestListenersHaveSynced: listeners have had all pods once the last listener has returned from the last pod.
func TestListenersHaveSynced(t *testing.T) {
	all, seen := New(), [2]int{}
	at, goOn := make(chan struct{}), make(chan struct{})
	client := fake.NewClientset(pod("a", "1", "10"), pod("b", "2", "11"))
	factory := informers.NewSharedInformerFactory(client, 0)
	var synced []cache.InformerSynced
	for i, stage := range []Stage{Shares, Gangs} {
		has, err := all.ListenToPods(factory, stage, PodListener{
			Seen: func(*v1.Pod, *v1.Pod) {
				if stage == Shares { // the last one
					at <- struct{}{}
					<-goOn
				}
				seen[i]++
			},
			Gone: func(*v1.Pod) {},
		})
		must.Succeed(t, err)
		synced = append(synced, has)
	}
	factory.Start(t.Context().Done())
	for range 2 {
		<-at
		if synced[0]() || synced[1]() {
			t.Error("they have had all pods while the last listener is at work")
		}
		goOn <- struct{}{}
	}
	if !cache.WaitForCacheSync(t.Context().Done(), synced...) || seen != [2]int{2, 2} {
		t.Errorf("seen: %v, want 2 each", seen)
	}
}
