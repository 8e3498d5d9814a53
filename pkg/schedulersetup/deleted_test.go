package schedulersetup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// doneQueue is a scheduling queue that notes which pods it is done with.
type doneQueue struct {
	internalqueue.SchedulingQueue
	done []types.UID
}

func (q *doneQueue) Done(pod types.UID) { q.done = append(q.done, pod) }

// informed is a profile of which only the pods that it knows are used.
type informed struct {
	framework.Framework
	factory informers.SharedInformerFactory
}

func (p informed) SharedInformerFactory() informers.SharedInformerFactory { return p.factory }
func (informed) APICacher() fwk.APICacher                                 { return nil }
func (informed) ProfileName() string                                      { return "lockstep-scheduler" }

// TestDeletedMeanwhile: kube-scheduler does not handle the failure of a pod that was deleted while it was being
// scheduled: it would log errors.
func TestDeletedMeanwhile(t *testing.T) {
	pod := func(uid string) *st.PodWrapper {
		return st.MakePod().Namespace("default").Name("p").UID(uid).SchedulerName("lockstep-scheduler")
	}
	failed := errors.New("running PreBind plugin")
	for sentence, c := range map[string]struct {
		known *v1.Pod // as the informer has it
		why   error
		want  bool
	}{
		"it exists":                       {pod("1").Obj(), failed, true},
		"it does not":                     {nil, failed, false},
		"another one has its name":        {pod("2").Obj(), failed, false},
		"it is being deleted":             {pod("1").Terminating().Obj(), failed, false},
		"it is on its node, and ends":     {pod("1").Terminating().Node("n").Obj(), failed, true},
		"the binder found that it is not": {pod("1").Obj(), fmt.Errorf("running Bind plugin: %w", binding.ErrDeleted), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset()
			factory := informers.NewSharedInformerFactory(client, 0)
			if c.known != nil {
				if c.known.DeletionTimestamp != nil {
					c.known.DeletionTimestamp = new(metav1.Now())
				}
				must.Succeed(t, factory.Core().V1().Pods().Informer().GetIndexer().Add(c.known))
			}
			handled, queue := 0, &doneQueue{}
			sched := &scheduler.Scheduler{SchedulingQueue: queue}
			sched.FailureHandler = func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status, *fwk.NominatingInfo, time.Time) {
				handled++
			}
			NewSet().wrapFailureHandler(sched)
			info, err := framework.NewPodInfo(pod("1").Obj())
			must.Succeed(t, err)
			sched.FailureHandler(t.Context(), informed{factory: factory}, &framework.QueuedPodInfo{PodInfo: info}, fwk.AsStatus(c.why), nil, time.Now())
			if (handled == 1) != c.want || (len(queue.done) == 1) == c.want {
				t.Errorf("handled %d times, and the queue is done with %v; want it handled: %t", handled, queue.done, c.want)
			}
		})
	}
}
