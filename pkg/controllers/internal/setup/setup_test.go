package setup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestEnqueue: what many events concern is looked at once, after the delay, and again for an event that comes while it
// is being looked at; a change concerns what the object concerned before, too.
func TestEnqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		q := priorityqueue.New[reconcile.Request](t.Name()) // that of controllers
		defer q.ShutDown()
		of := func(gang string) reconcile.Request {
			return reconcile.Request{NamespacedName: client.ObjectKey{Name: gang}}
		}
		events := Enqueue(delay, func(_ context.Context, object client.Object) []reconcile.Request {
			if gang := object.GetLabels()["gang"]; gang != "" {
				return []reconcile.Request{of(gang)}
			}
			return nil
		})
		pod := func(gang string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"gang": gang}}}
		}
		expect := func(want ...string) {
			t.Helper()
			began := time.Now()
			got := map[reconcile.Request]bool{}
			for range want {
				request, _ := q.Get()
				got[request] = true
				if time.Since(began) != delay {
					t.Errorf("%s was looked at after %v, want %v", request, time.Since(began), delay)
				}
			}
			for _, gang := range want {
				if !got[of(gang)] {
					t.Errorf("looked at %v, want %s among them", got, gang)
				}
			}
			time.Sleep(10 * delay)
			synctest.Wait()
			if q.Len() > 0 {
				t.Errorf("%d more to look at, want none", q.Len())
			}
		}
		for range 10 {
			events.Create(t.Context(), event.CreateEvent{Object: pod("a")}, q)
			events.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("a"), ObjectNew: pod("a")}, q)
			events.Create(t.Context(), event.CreateEvent{Object: pod("")}, q)
		}
		expect("a")
		events.Delete(t.Context(), event.DeleteEvent{Object: pod("a")}, q)
		q.Done(of("a"))
		expect("a")
		q.Done(of("a"))
		events.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("a"), ObjectNew: pod("b")}, q)
		expect("a", "b")
	})
}
