package evictions

import (
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// ofTheJob makes pods those of a Job with the name and UID train.
func ofTheJob(pods []*v1.Pod) []*v1.Pod {
	for _, pod := range pods {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: new(true)}}
	}
	return pods
}

func job(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train", UID: "train"}, Spec: batchv1.JobSpec{Suspend: new(false)}}
	if change != nil {
		change(j)
	}
	return j
}

// TestWholeJobs: a Job is suspended where its gang asks for it and all of its pods on nodes go.
func TestWholeJobs(t *testing.T) {
	waits := ofTheJob(members("g", 3, 2, "n0"))
	waits[2].Spec.NodeName = ""
	done := ofTheJob(members("g", 3, 2, "n0"))
	done[2].Status.Phase = v1.PodSucceeded
	ends := ofTheJob(members("g", 3, 2, "n0"))
	ends[2].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	ofTwo := ofTheJob(members("g", 2, 2, "n0"))
	ofTwo[1].OwnerReferences[0].Name, ofTwo[1].OwnerReferences[0].UID = "other", "other"
	for sentence, c := range map[string]struct {
		pods            []*v1.Pod // the first two are evicted
		gang, namespace string
		configured      string
		jobs            int
	}{
		"its gang asks for it":               {pods: ofTheJob(members("g", 2, 2, "n0")), gang: "Suspend", jobs: 1},
		"its namespace does":                 {pods: ofTheJob(members("g", 2, 2, "n0")), namespace: "Suspend", jobs: 1},
		"the configuration does":             {pods: ofTheJob(members("g", 2, 2, "n0")), configured: "Suspend", jobs: 1},
		"its gang does not":                  {pods: ofTheJob(members("g", 2, 2, "n0")), gang: "Delete", namespace: "Suspend", configured: "Suspend"},
		"its namespace does not":             {pods: ofTheJob(members("g", 2, 2, "n0")), namespace: "Delete", configured: "Suspend"},
		"its namespace says what is unclear": {pods: ofTheJob(members("g", 2, 2, "n0")), namespace: "suspend", configured: "Suspend", jobs: 1},
		"nobody asks":                        {pods: ofTheJob(members("g", 2, 2, "n0"))},
		"two Jobs made its pods":             {pods: ofTwo, gang: "Suspend", jobs: 2},
		"another pod stays":                  {pods: ofTheJob(members("g", 3, 2, "n0")), gang: "Suspend"},
		"another pod has no node":            {pods: waits, gang: "Suspend", jobs: 1},
		"another pod has finished":           {pods: done, gang: "Suspend", jobs: 1},
		"another pod is being deleted":       {pods: ends, gang: "Suspend", jobs: 1},
		"no Job made the pods":               {pods: members("g", 2, 2, "n0"), gang: "Suspend"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, known{}, c.pods...)
			namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			must.Succeed(t, namespaces.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{v1alpha1.EvictByAnnotation: c.namespace}}}))
			s.Jobs.Namespaces, s.Jobs.EvictBy = corev1listers.NewNamespaceLister(namespaces), c.configured
			f := runs("g", 2, c.pods[:2]...)
			f.EvictBy = c.gang
			jobs, err := s.WholeJobs([]gangstate.RunningGang{f}, c.pods[:2])
			if err != nil || len(jobs) != c.jobs {
				t.Errorf("jobs %v, %v; want %d", jobs, err, c.jobs)
			}
		})
	}
}

// TestSuspendJobs: a Job is suspended as it is at that moment, or its pods are deleted.
func TestSuspendJobs(t *testing.T) {
	suspendedBefore := func(j *batchv1.Job) {
		j.Spec.Suspend, j.Annotations = new(true), map[string]string{v1alpha1.EvictedAnnotation: "{}"}
	}
	for sentence, c := range map[string]struct {
		job    *batchv1.Job
		refuse func(call int) error // of patches, from 1
		left   bool
		event  string
	}{
		"it is suspended": {job: job(nil), left: true},
		"it changes meanwhile": {job: job(nil), left: true, refuse: func(call int) error {
			if call < 3 {
				return apierrors.NewConflict(batchv1.Resource("jobs"), "train", errors.New("changed"))
			}
			return nil
		}},
		"another profile did": {job: job(suspendedBefore), left: true},
		"it must not be":      {job: job(func(j *batchv1.Job) { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "team"} })},
		"it is gone":          {},
		"it was made anew":    {job: job(func(j *batchv1.Job) { j.UID = "another" })},
		"the API server refuses": {job: job(nil), refuse: func(int) error { return forbidden("train") },
			event: `Warning SuspendFailed suspending Job default/train: pods "train" is forbidden: policy; its pods are deleted instead, and the Job controller makes them again after a pause`},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := ofTheJob(members("g", 2, 2, "n0"))
			s := newStage(t, known{}, pods...)
			if c.job != nil {
				must.Succeed(t, s.client.Tracker().Add(c.job))
			}
			calls := 0
			s.client.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
				if calls++; c.refuse != nil {
					err := c.refuse(calls)
					return err != nil, nil, err
				}
				return false, nil, nil
			})
			s.Jobs.EvictBy = v1alpha1.EvictBySuspend
			jobs, err := s.WholeJobs([]gangstate.RunningGang{runs("g", 2, pods...)}, pods)
			if err != nil || len(jobs) != 1 {
				t.Fatal(jobs, err)
			}
			left := s.SuspendJobs(s.ctx, jobs, "gang a/b")
			if left.Has("g-0") != c.left || left.Has("g-1") != c.left {
				t.Errorf("left to the Job controller: %v, want %v", left.pods, c.left)
			}
			if got := s.event(); got != c.event {
				t.Errorf("event %q, want %q", got, c.event)
			}
			if !c.left {
				return
			}
			now, err := s.client.BatchV1().Jobs("default").Get(s.ctx, "train", metav1.GetOptions{})
			if err != nil || !jobsuspension.IsSuspendedByEviction(now) {
				t.Errorf("suspended: %+v, %v", now, err)
			}
		})
	}
}

// event returns the event that was recorded; empty for none.
func (s *stage) event() string {
	select {
	case event := <-s.events.Events:
		return event
	default:
		return ""
	}
}

// TestOverdue: pods that the Job controller has not deleted are overdue once it has deleted none for a while.
func TestOverdue(t *testing.T) {
	pods := ofTheJob(members("g", 3, 3, "n0"))
	s := newStage(t, known{}, pods...)
	left := s.SuspendJobs(s.ctx, nil, "gang a/b")
	for _, pod := range pods {
		left.pods[pod.UID] = true
	}
	after := func(d time.Duration) int {
		left.since = left.since.Add(-d)
		return len(s.Overdue(left))
	}
	if n := after(ownerGrace - time.Second); n != 0 {
		t.Errorf("%d are overdue at once", n)
	}
	find := s.Pod
	s.Pod = func(uid types.UID) (*v1.Pod, bool) {
		if uid == "g-0" {
			return nil, false
		}
		return find(uid)
	}
	if n := after(time.Second); n != 0 {
		t.Errorf("%d are overdue although one has just gone", n)
	}
	if n := after(ownerGrace); n != 2 {
		t.Errorf("%d are overdue, want 2", n)
	}
}
