package reservepods

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// side is the API server's side of a ListWatch: it notes from where it is asked, and gives the
// answers that a test sets.
type side struct {
	*cache.ListWatch
	asked   []string
	list    runtime.Object
	err     error
	watches []*watch.FakeWatcher
}

func newSide() *side {
	s := &side{list: &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}}
	s.ListWatch = &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			s.asked = append(s.asked, "list from "+options.ResourceVersion)
			return s.list, s.err
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			s.asked = append(s.asked, "watch from "+options.ResourceVersion)
			if s.err != nil {
				return nil, s.err
			}
			s.watches = append(s.watches, watch.NewFake())
			return s.watches[len(s.watches)-1], nil
		},
	}
	return s
}

func (s *side) last() *watch.FakeWatcher { return s.watches[len(s.watches)-1] }

func realPod(name, version string) *v1.Pod {
	return st.MakePod().Namespace(ns).Name(name).UID(name).ResourceVersion(version).Obj()
}

func from(version string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}
}

func listed(t *testing.T, l cache.ListerWatcher, options metav1.ListOptions) *v1.PodList {
	t.Helper()
	list, err := cache.ToListerWatcherWithContext(l).ListWithContext(t.Context(), options)
	must.Succeed(t, err)
	return list.(*v1.PodList)
}

func watched(t *testing.T, l cache.ListerWatcher, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := cache.ToListerWatcherWithContext(l).WatchWithContext(t.Context(), options)
	must.Succeed(t, err)
	return w
}

// receive takes so many events.
func receive(t *testing.T, w watch.Interface, n int) []string {
	t.Helper()
	var events []string
	for range n {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("the watch ended after %q", events)
		}
		pod := event.Object.(*v1.Pod)
		events = append(events, string(event.Type)+" "+pod.Name+" at "+pod.ResourceVersion)
	}
	return events
}

func expect(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func names(list *v1.PodList) []string {
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return all
}

func TestPodsOfTheStoreAreOnTheLastPage(t *testing.T) {
	inner, store := newSide(), storeOf(t, reservePod("a").Obj(), reservePod("b").Obj())
	l := NewListWatch(inner, store)
	inner.list = &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: "more"}, Items: []v1.Pod{*realPod("x", "7")}}
	first := listed(t, l, from("0"))
	expect(t, "first page", []string{"x"}, names(first))
	inner.list = &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "104"}, Items: []v1.Pod{*realPod("y", "9")}}
	second := listed(t, l, metav1.ListOptions{Continue: "more"})
	expect(t, "second page", []string{"y", PodName("a", 0), PodName("b", 0)}, names(second))
	synctest.Test(t, func(t *testing.T) {
		defer watched(t, l, from("100")).Stop()
	})
	expect(t, "asked", []string{"list from 0", "list from ", "watch from 100"}, inner.asked) // 104 would leave out what page 1 has not
}

func TestWatchGoesOnFromTheAPIServersOwnVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store := newSide(), storeOf(t, reservePod("a").Obj())
		l := NewListWatch(inner, store)
		listed(t, l, from("0"))
		w := watched(t, l, from("100"))
		name := PodName("a", 0)
		must.Succeed(t, store.Bind(ns, bindingOf(name, "n1")))
		expect(t, "events", []string{"MODIFIED " + name + " at 2", "BOOKMARK  at 100"}, receive(t, w, 2))
		inner.last().Add(realPod("x", "105"))
		expect(t, "events", []string{"ADDED x at 105"}, receive(t, w, 1))
		must.Succeed(t, store.Delete(ns, name, nil))
		expect(t, "events", []string{"DELETED " + name + " at 3"}, receive(t, w, 1))
		w.Stop() // the bookmark is not taken: the reflector takes 3 for where it is
		w = watched(t, l, from("3"))
		w.Stop()
		listed(t, l, from("3"))
		listed(t, l, from(""))
		expect(t, "asked", []string{"list from 0", "watch from 100", "watch from 105", "list from 105", "list from "}, inner.asked)
	})
}

// TestVersionsOutOfOrderAreNoneToGoOnFrom: an API server that gives no version with its lists sends
// what there is in no order.
func TestVersionsOutOfOrderAreNoneToGoOnFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store := newSide(), storeOf(t, reservePod("a").Obj())
		inner.list = &v1.PodList{}
		l := NewListWatch(inner, store)
		listed(t, l, from("0"))
		w := watched(t, l, from(""))
		inner.last().Add(realPod("x", "9"))
		receive(t, w, 1)
		must.Succeed(t, store.Delete(ns, PodName("a", 0), nil))
		expect(t, "events", []string{"DELETED " + PodName("a", 0) + " at 2"}, receive(t, w, 1))
		w.Stop() // before y, which has an older version
		watched(t, l, from("2")).Stop()
		expect(t, "asked", []string{"list from 0", "watch from ", "watch from "}, inner.asked)
	})
}

func TestWhatWasNotTakenComesWithTheNextWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store := newSide(), NewStore()
		l := NewListWatch(inner, store)
		listed(t, l, from("0"))
		w := watched(t, l, from("100"))
		name := PodName("a", 0)
		must.Succeed(t, store.Add(reservePod("a").Obj()))
		synctest.Wait() // it is being sent
		w.Stop()
		must.Succeed(t, store.Bind(ns, bindingOf(name, "n1")))
		must.Succeed(t, store.Delete(ns, name, nil))
		expect(t, "list", nil, names(listed(t, l, from("100"))))
		w = watched(t, l, from("100"))
		expect(t, "events", []string{"ADDED " + name + " at 1", "MODIFIED " + name + " at 2", "DELETED " + name + " at 3", "BOOKMARK  at 100"}, receive(t, w, 4))
		w.Stop()
	})
}

func TestListIsWhatTheReflectorHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store := newSide(), storeOf(t, reservePod("a").Obj())
		l := NewListWatch(inner, store)
		listed(t, l, from("0"))
		must.Succeed(t, store.Bind(ns, bindingOf(PodName("a", 0), "n1")))
		for _, bound := range []bool{false, true} {
			inner.list = &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
			list := listed(t, l, from("100"))
			if len(list.Items) != 1 || (list.Items[0].Spec.NodeName != "") != bound {
				t.Errorf("the list is %v; bound should be %t", list.Items, bound)
			}
			w := watched(t, l, from("100"))
			if !bound {
				receive(t, w, 1)
			}
			w.Stop()
		}
	})
}

func TestStreamedListHasThePodsOfTheStoreBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, store := newSide(), storeOf(t, reservePod("a").Obj())
		l := NewListWatch(inner, store)
		all := true
		options := metav1.ListOptions{AllowWatchBookmarks: true, SendInitialEvents: &all}
		end := &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		name := PodName("a", 0)

		w := watched(t, l, options)
		must.Succeed(t, store.Bind(ns, bindingOf(name, "n1")))
		inner.last().Add(realPod("x", "99"))
		expect(t, "events", []string{"ADDED x at 99"}, receive(t, w, 1))
		w.Stop() // before its end: everything again
		w = watched(t, l, options)
		go func() {
			inner.last().Add(realPod("x", "99"))
			inner.last().Action(watch.Bookmark, end)
		}()
		expect(t, "events", []string{"ADDED x at 99", "ADDED " + name + " at 1", "BOOKMARK  at 100", "MODIFIED " + name + " at 2", "BOOKMARK  at 100"}, receive(t, w, 5))
		w.Stop()
		expect(t, "asked", []string{"watch from ", "watch from "}, inner.asked)
	})
}

func TestWatchEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l cache.ListerWatcher, inner *side, w watch.Interface){
		"when it is stopped":      func(_ *testing.T, _ cache.ListerWatcher, _ *side, w watch.Interface) { w.Stop(); w.Stop() },
		"when the inner one ends": func(_ *testing.T, _ cache.ListerWatcher, inner *side, _ watch.Interface) { inner.last().Stop() },
		"when another begins": func(t *testing.T, l cache.ListerWatcher, inner *side, _ watch.Interface) {
			before := inner.last()
			watched(t, l, from("100")).Stop()
			if !before.IsStopped() {
				t.Error("the next watch did not wait for the end of the one before")
			}
		},
		"when there is a list": func(t *testing.T, l cache.ListerWatcher, inner *side, _ watch.Interface) {
			listed(t, l, from("100"))
			if !inner.last().IsStopped() {
				t.Error("the list did not wait for the end of the watch")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, store := newSide(), NewStore()
				l := NewListWatch(inner, store)
				listed(t, l, from("0"))
				w := watched(t, l, from("100"))
				end(t, l, inner, w)
				if event, ok := <-w.ResultChan(); ok {
					t.Errorf("got %v, want the end", event)
				}
				synctest.Wait()
				if !inner.watches[0].IsStopped() {
					t.Error("the inner watch goes on")
				}
			})
		})
	}
}

func TestErrorsArePassedOn(t *testing.T) {
	inner := newSide()
	l := cache.ToListerWatcherWithContext(NewListWatch(inner, NewStore()))
	inner.err = errors.New("in trouble")
	if _, err := l.ListWithContext(t.Context(), from("0")); !errors.Is(err, inner.err) {
		t.Errorf("List says %v", err)
	}
	if _, err := l.WatchWithContext(t.Context(), from("0")); !errors.Is(err, inner.err) {
		t.Errorf("Watch says %v", err)
	}
	inner.err, inner.list = nil, &v1.NodeList{}
	if _, err := l.ListWithContext(t.Context(), from("0")); err == nil {
		t.Error("a list of nodes is one of pods")
	}
}

func TestStreamingIsAskedOfTheInnerSide(t *testing.T) {
	for _, unstreamed := range []bool{true, false} {
		l := NewListWatch(&api{unstreamed: unstreamed}, NewStore())
		if got := watchlist.DoesClientNotSupportWatchListSemantics(l); got != unstreamed {
			t.Errorf("it cannot stream is %t, want %t", got, unstreamed)
		}
	}
}
