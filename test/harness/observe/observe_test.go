package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// apiServer has pods, "name#uid@version", and one watch on them at a time.
type apiServer struct {
	pods   []string
	away   atomic.Bool
	stream *watch.FakeWatcher
}

func pod(text string) *v1.Pod {
	name, rest, _ := strings.Cut(text, "#")
	uid, version, _ := strings.Cut(rest, "@")
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func text(pod *v1.Pod) string {
	if pod == nil {
		return ""
	}
	return fmt.Sprintf("%s#%s@%s", pod.Name, pod.UID, pod.ResourceVersion)
}

func (s *apiServer) source() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if s.away.Load() {
				return nil, errors.New("connection refused")
			}
			list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
			for _, one := range s.pods {
				list.Items = append(list.Items, *pod(one))
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.ResourceVersion != "9" {
				return nil, fmt.Errorf("watching from version %q", o.ResourceVersion)
			}
			s.stream = watch.NewFake()
			return s.stream, nil
		},
	}
}

// pass lets time pass, and waits for all that happens then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFollower: what happens is delivered in order, also after the watch was cut.
func TestFollower(t *testing.T) {
	// cut ends the watch, and leaves these pods.
	cut := func(s *apiServer, pods ...string) {
		s.pods = pods
		s.stream.Stop()
	}
	for sentence, c := range map[string]struct {
		there []string
		do    func(s *apiServer)
		want  []string // "before > after"
	}{
		"what is there is new": {there: []string{"a#1@1", "b#2@2"}, want: []string{" > a#1@1", " > b#2@2", "listed"}},
		"what comes, changes, goes": {do: func(s *apiServer) {
			s.stream.Add(pod("a#1@1"))
			s.stream.Modify(pod("a#1@2"))
			s.stream.Delete(pod("a#1@3"))
		}, want: []string{"listed", " > a#1@1", "a#1@1 > a#1@2", "a#1@3 > "}},
		"what is told twice is seen once": {
			there: []string{"a#1@1"}, do: func(s *apiServer) { s.stream.Modify(pod("a#1@1")) }, want: []string{" > a#1@1", "listed"},
		},
		"a bookmark is no change": {do: func(s *apiServer) { s.stream.Action(watch.Bookmark, pod("#@12")) }, want: []string{"listed"}},
		"what changed while the watch was cut": {
			there: []string{"a#1@1", "b#2@2", "c#3@3"}, do: func(s *apiServer) { cut(s, "a#1@1", "b#2@5", "d#4@4") },
			want: []string{" > a#1@1", " > b#2@2", " > c#3@3", "listed", "c#3@3 > ", "b#2@2 > b#2@5", " > d#4@4", "listed"},
		},
		"what was made again meanwhile is another": {
			there: []string{"a#1@1"}, do: func(s *apiServer) { cut(s, "a#2@2") }, want: []string{" > a#1@1", "listed", "a#1@1 > ", " > a#2@2", "listed"},
		},
		"an API server that is away is waited for": {
			there: []string{"a#1@1"}, do: func(s *apiServer) {
				s.away.Store(true)
				cut(s)
				pass(10 * retryAfter)
				s.away.Store(false)
			},
			want: []string{" > a#1@1", "listed", "a#1@1 > ", "listed"},
		},
		"an error of the watch is a cut": {
			do: func(s *apiServer) { s.pods = []string{"a#1@1"}; s.stream.Error(&metav1.Status{Message: "too old"}) }, want: []string{"listed", " > a#1@1", "listed"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiServer{pods: c.there}
				var got []string
				ctx, cancel := context.WithCancel(t.Context())
				go Follower[*v1.Pod]{
					From: s.source(), See: func(before, after *v1.Pod) { got = append(got, text(before)+" > "+text(after)) },
					Listed: func() { got = append(got, "listed") },
				}.Run(ctx)
				synctest.Wait()
				if c.do != nil {
					c.do(s)
					synctest.Wait()
				}
				pass(2 * retryAfter)
				cancel()
				s.stream.Stop()
				synctest.Wait()
				if !slices.Equal(got, c.want) {
					t.Errorf("seen:\n%q\nwant:\n%q", got, c.want)
				}
			})
		})
	}
}

// TestFollowerOfWholes: a list is delivered as a whole, where that is wanted, and its objects are
// known.
func TestFollowerOfWholes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{pods: []string{"a#1@1", "b#2@2"}}
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		go Follower[*v1.Pod]{
			From: s.source(), See: func(before, after *v1.Pod) { got = append(got, text(before)+" > "+text(after)) },
			SeeAll: func(all []*v1.Pod) { got = append(got, fmt.Sprintf("%d pods", len(all))) },
		}.Run(ctx)
		synctest.Wait()
		s.stream.Modify(pod("a#1@3"))
		s.pods = []string{"a#1@3"}
		s.stream.Stop()
		synctest.Wait()
		s.stream.Modify(pod("a#1@4"))
		cancel()
		s.stream.Stop()
		synctest.Wait()
		if want := []string{"2 pods", "a#1@1 > a#1@3", "1 pods", "a#1@3 > a#1@4"}; !slices.Equal(got, want) {
			t.Errorf("seen %q, want %q", got, want)
		}
	})
}

// TestBoard: the condition of a Wait is checked after every change, and no longer than its context
// lasts.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen struct {
			Board
			n int
		}
		asked := 0
		done := make(chan error, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := func(n int) {
			go func() { done <- seen.Wait(ctx, func() bool { asked++; return seen.n >= n }) }()
			synctest.Wait()
		}
		add := func() {
			seen.Lock()
			seen.n++
			seen.Changed()
			seen.Unlock()
			synctest.Wait()
		}
		wait(2)
		add()
		if len(done) > 0 || asked != 2 {
			t.Fatalf("asked %d times; it waits: %t", asked, len(done) == 0)
		}
		add()
		if err := <-done; err != nil || asked != 3 {
			t.Errorf("error %v; asked %d times", err, asked)
		}
		add() // no goroutine waits
		wait(9)
		cancel(errors.New("enough"))
		if err := <-done; err == nil || err.Error() != "enough" {
			t.Errorf("error %v", err)
		}
	})
}
