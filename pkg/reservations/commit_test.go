package reservations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// server is an API server with one Reservation.
type server struct {
	mu     sync.Mutex
	object *v1alpha1.Reservation // nil: it is deleted
	writes int
	// before is called at each write, with its number; stored: the write is stored, in spite of the error.
	before func(s *server, write int) (err error, stored bool)
}

func (s *server) react(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	stored := true
	if update, ok := action.(clienttesting.UpdateAction); ok {
		s.writes++
		if s.before != nil {
			if err, stored = s.before(s, s.writes); err != nil && !stored {
				return true, nil, err
			}
		}
		next, readErr := typed(update.GetObject().(*unstructured.Unstructured))
		switch {
		case readErr != nil:
			return true, nil, readErr
		case s.object == nil:
			return true, nil, apierrors.NewNotFound(v1alpha1.ReservationResource.GroupResource(), next.Name)
		case next.ResourceVersion != s.object.ResourceVersion:
			return true, nil, apierrors.NewConflict(v1alpha1.ReservationResource.GroupResource(), next.Name, errors.New("it has changed"))
		}
		s.change(func(r *v1alpha1.Reservation) { r.Status = next.Status })
	}
	if err != nil {
		return true, nil, err
	}
	if s.object == nil {
		return true, nil, apierrors.NewNotFound(v1alpha1.ReservationResource.GroupResource(), "r")
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.object)
	return true, &unstructured.Unstructured{Object: content}, err
}

func (s *server) change(do func(r *v1alpha1.Reservation)) {
	s.object = s.object.DeepCopy()
	do(s.object)
	version := 0
	if _, err := fmt.Sscan(s.object.ResourceVersion, &version); err != nil {
		panic(err)
	}
	s.object.ResourceVersion = fmt.Sprint(version + 1)
}

// served returns a registry with a Reservation that seeks places, and the API server that has it.
func served(t *testing.T, replicas int32) (*stage, *server) {
	s := newStage(t)
	s.Registry.clock = clock.RealClock{} // that of the bubble
	r := s.make("r", func(r *v1alpha1.Reservation) { r.Spec.Replicas, r.Spec.TTL = replicas, nil })
	r.CreationTimestamp.Time = time.Now()
	api := &server{object: r}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.ReservationResource: "ReservationList"})
	client.PrependReactor("*", "*", api.react)
	s.statuses = client.Resource(v1alpha1.ReservationResource)
	s.Update(r)
	e := s.entries["r"]
	e.pods = reservePods(r, e.template, reservationstate.Missing(r), 1)
	for _, pod := range e.pods {
		must.Succeed(t, s.store.Add(pod))
	}
	return s, api
}

// bindAll binds all reserve pods, index 0 to node-0 and so on, and returns what became of it.
func (s *stage) bindAll(ctx context.Context, but ...int32) (failed []error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for index, pod := range s.entries["r"].pods {
		if len(but) > 0 && index == but[0] {
			continue
		}
		group.Go(func() {
			if err := s.Bind(ctx, pod, fmt.Sprint("node-", index)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	synctest.Wait()
	if len(but) > 0 {
		s.Release(s.entries["r"].pods[but[0]])
	}
	group.Wait()
	return failed
}

// TestBindTogether: all placements are written at once and held from then on, or none is.
func TestBindTogether(t *testing.T) {
	conflict := func(do func(r *v1alpha1.Reservation)) func(*server, int) (error, bool) {
		return func(s *server, write int) (error, bool) {
			if write == 1 {
				s.change(do)
			}
			return nil, true
		}
	}
	for sentence, c := range map[string]struct {
		before func(*server, int) (error, bool)
		writes int
		fails  string // in the error; empty where all are bound
	}{
		"it is written":                         {writes: 1},
		"somebody else writes at the same time": {before: conflict(func(r *v1alpha1.Reservation) { r.Status.Phase = v1alpha1.ReservationPending }), writes: 2},
		"the answer is lost": {before: func(_ *server, write int) (error, bool) {
			if write == 1 {
				return apierrors.NewTimeoutError("lost", 1), true
			}
			return nil, true
		}, writes: 2},
		"the API server is away for a while": {before: func(_ *server, write int) (error, bool) {
			if write < 5 {
				return errors.New("connection refused"), false
			}
			return nil, true
		}, writes: 5},
		"it is deleted": {before: func(s *server, _ int) (error, bool) { s.object = nil; return nil, true }, writes: 1, fails: "not found"},
		"it may not be written": {before: func(*server, int) (error, bool) {
			return apierrors.NewForbidden(v1alpha1.ReservationResource.GroupResource(), "r", errors.New("no")), false
		}, writes: 1, fails: "forbidden"},
		"it has ended meanwhile": {before: conflict(func(r *v1alpha1.Reservation) { r.Status.Phase = v1alpha1.ReservationFailed }), writes: 1, fails: "it has ended"},
		"another scheduler has placed it": {before: conflict(func(r *v1alpha1.Reservation) {
			r.Status.Placements = []v1alpha1.ReservationPlacement{{Index: 1, NodeName: "elsewhere"}}
		}), writes: 1, fails: "is on node elsewhere by now"},
		"it is another one by now": {before: conflict(func(r *v1alpha1.Reservation) { r.UID = "another" }), writes: 1, fails: "another of its name"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := served(t, 3)
				api.before = c.before
				failed := s.bindAll(t.Context())
				if api.writes != c.writes {
					t.Errorf("%d writes, want %d", api.writes, c.writes)
				}
				if c.fails != "" {
					if len(failed) != 3 || !strings.Contains(failed[0].Error(), c.fails) {
						t.Errorf("%d failed: %v; want all, as %q", len(failed), failed, c.fails)
					}
					if got := s.held(); got != "" {
						t.Errorf("held %q", got)
					}
					s.work.ShutDown()
					return
				}
				if len(failed) > 0 {
					t.Errorf("failed: %v", failed)
				}
				if got := s.held(); got != "node-0: 4, node-1: 4, node-2: 4" {
					t.Errorf("held %q", got)
				}
				status := api.object.Status
				if status.Phase != v1alpha1.ReservationAvailable || len(status.Placements) != 3 || status.Allocatable.Cpu().String() != "12" || !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ReservationScheduled) {
					t.Errorf("status %+v", status)
				}
				for index := range 3 {
					pod, err := s.store.Get("default", fmt.Sprint("reservation_r_", index))
					if err != nil || pod.Spec.NodeName != fmt.Sprint("node-", index) {
						t.Errorf("reserve pod %d: %v, %v", index, pod, err)
					}
				}
				s.work.ShutDown()
			})
		})
	}
}

// TestOneComesToNothing: where one of the placements is given back, all are.
func TestOneComesToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 3)
		failed := s.bindAll(t.Context(), 1)
		if len(failed) != 2 || api.writes != 0 || s.held() != "" {
			t.Errorf("failed: %v, %d writes, held %q", failed, api.writes, s.held())
		}
		if failed := s.bindAll(t.Context()); len(failed) > 0 || api.writes != 1 {
			t.Errorf("then failed: %v, %d writes", failed, api.writes)
		}
		s.work.ShutDown()
	})
}

// TestNobodyAsksAnyMore: a reserve pod that was taken back is bound nowhere.
func TestNobodyAsksAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 2)
		pods := s.entries["r"].pods
		waits := make(chan error, 1)
		go func() { waits <- s.Bind(t.Context(), pods[0], "node-0") }()
		synctest.Wait()
		s.reservationDeleted("r")
		if err := <-waits; err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("the first: %v", err)
		}
		if err := s.Bind(t.Context(), pods[1], "node-1"); err == nil || !strings.Contains(err.Error(), "no longer asks for it") {
			t.Errorf("the second: %v", err)
		}
		for _, pod := range pods {
			if _, err := s.store.Get(pod.Namespace, pod.Name); !apierrors.IsNotFound(err) {
				t.Errorf("reserve pod %s: %v", pod.Name, err)
			}
		}
		if api.writes > 0 {
			t.Errorf("%d writes", api.writes)
		}
		s.work.ShutDown()
	})
}

// TestGoingDown: a reserve pod that waits for the others does not keep the process.
func TestGoingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := served(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() { waits <- s.Bind(ctx, s.entries["r"].pods[0], "node-0") }()
		synctest.Wait()
		cancel()
		if err := <-waits; err == nil {
			t.Error("it is bound")
		}
		s.work.ShutDown()
	})
}

// TestDeletedAsItIsWritten: what is deleted before the answer to its last write comes stays deleted.
func TestDeletedAsItIsWritten(t *testing.T) {
	for sentence, again := range map[string]bool{"and no more": false, "and made again": true} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := served(t, 2)
				api.before = func(*server, int) (error, bool) {
					s.reservationDeleted("r") // the watch is quicker
					if again {
						s.Update(s.make("r", func(r *v1alpha1.Reservation) {
							r.UID, r.Spec.TTL, r.CreationTimestamp.Time = "another", nil, time.Now()
						}))
					}
					return nil, true
				}
				if failed := s.bindAll(t.Context()); len(failed) != 2 || !strings.Contains(failed[0].Error(), "it has ended") {
					t.Errorf("failed: %v", failed)
				}
				if got := s.held(); got != "" || !s.holds.Empty() {
					t.Errorf("held %q", got)
				}
				if e := s.entries["r"]; again && (e == nil || e.object.UID != "another") || !again && e != nil {
					t.Errorf("known: %+v", e)
				}
				s.work.ShutDown()
			})
		})
	}
}

// TestOwnersWaitForTheWrite: a pod whose creator has seen that its Reservation is available finds it so.
func TestOwnersWaitForTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 2)
		pod, stranger := owner("p", "1"), owner("q", "1")
		stranger.Labels["app"] = "other"
		api.before = func(*server, int) (error, bool) {
			if got := s.Missing(pod); !strings.Contains(got, `Reservation "r" are being written`) {
				t.Errorf("while it is written: %q", got)
			}
			if got := s.Missing(stranger); got != "" {
				t.Errorf("a stranger: %q", got)
			}
			return nil, true
		}
		if got := s.Missing(pod); got != "" {
			t.Errorf("before it is written: %q", got)
		}
		freed := 0
		s.holds.OnReport(func() { freed++ })
		s.bindAll(t.Context())
		if got := s.Missing(pod); got != "" || len(s.Slots(pod, nothing)) != 2 || freed == 0 {
			t.Errorf("once it is written: %q, slots %v, %d reports", got, s.Slots(pod, nothing), freed)
		}
		s.work.ShutDown()
	})
}

// TestReservePodTaken: a reserve pod that is deleted while its place is written stands in no pod's way.
func TestReservePodTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 3)
		api.before = func(*server, int) (error, bool) {
			return s.store.Delete("default", "reservation_r_1", nil), true
		}
		s.bindAll(t.Context())
		if got := s.held(); got != "node-0: 4, node-1: 4, node-2: 4" {
			t.Errorf("held %q", got)
		}
		for index := range 3 {
			if pod, err := s.store.Get("default", fmt.Sprint("reservation_r_", index)); !apierrors.IsNotFound(err) {
				t.Errorf("reserve pod %d: %v, %v", index, pod, err)
			}
		}
		s.work.ShutDown()
	})
}
