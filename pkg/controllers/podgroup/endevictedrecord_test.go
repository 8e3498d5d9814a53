package podgroup

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/members"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestEndEvicted: what a PodGroup says of an eviction goes when its gang is back, or never comes back.
func TestEndEvicted(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	before, after := at.Add(-time.Minute), at.Add(time.Minute)
	job := func(kind batchv1.JobConditionType, owner string) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train"}}
		if kind != "" {
			j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: v1.ConditionTrue}}
		}
		if owner != "" {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: owner, Name: "o", UID: "o", Controller: new(true)}}
		}
		return j
	}
	running := job("", "")
	for sentence, c := range map[string]struct {
		pods  []time.Time // when they were created; those that were there before have a node
		of    string      // the kind of the PodGroup's owner
		phase schedulingv1alpha1.PodGroupPhase
		job   *batchv1.Job
		later time.Duration
		ends  bool
	}{
		"it has no pods":                   {job: running},
		"its pods are being evicted":       {pods: []time.Time{before, before}, job: running},
		"one has been made again":          {pods: []time.Time{after}, job: running},
		"both have":                        {pods: []time.Time{at, after}, job: running, ends: true},
		"one of the old ones runs still":   {pods: []time.Time{before, after, after}, job: running},
		"it has ended":                     {phase: schedulingv1alpha1.PodGroupFinished, job: running, ends: true},
		"its Job has failed":               {job: job(batchv1.JobFailed, ""), ends: true},
		"its Job is complete":              {job: job(batchv1.JobComplete, ""), ends: true},
		"its Job is suspended":             {job: job(batchv1.JobSuspended, "")},
		"its Job is gone":                  {ends: true},
		"the Job of a CronJob has failed":  {job: job(batchv1.JobFailed, "CronJob"), ends: true},
		"a JobSet makes failed Jobs again": {job: job(batchv1.JobFailed, "JobSet")},
		"and those that are gone":          {of: "JobSet"},
		"it was long ago":                  {job: running, later: 25 * time.Hour, ends: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			evicted := evictionrecord.New(at, "gang ns/vip")
			evicted.Job = "train"
			pg := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", Annotations: map[string]string{v1alpha1.EvictedAnnotation: evicted.Annotation()}}}
			if c.of != "" {
				pg.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: c.of, Name: "o", UID: "o", Controller: new(true)}}
			}
			builder := fakeapi.New(pg)
			if c.job != nil {
				builder = builder.WithObjects(c.job)
			}
			r := &reconciler{follower: follower{client: builder.Build(), clock: testclock.NewFakePassiveClock(at.Add(time.Minute + c.later))}}
			var pods []*v1.Pod
			for i, created := range c.pods {
				p := members.Pod(i, "waiting")
				if created.Before(at) {
					p = members.Pod(i, "running")
				}
				p.CreationTimestamp = metav1.NewTime(created)
				pods = append(pods, p)
			}
			result := r.mustEndEvicted(t, pg, pods, c.phase)
			if _, stands := pg.Annotations[v1alpha1.EvictedAnnotation]; stands == c.ends || stands != (result.RequeueAfter == jobInterval) {
				t.Errorf("it stands: %v, and is looked at again after %v", stands, result.RequeueAfter)
			}
		})
	}
}

// TestEvictedForGood: that a gang was evicted, and that its Job makes its pods again, is no longer said once the Job
// has ended. If that has failed, the gang has, and goes on to say so.
func TestEvictedForGood(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for sentence, c := range map[string]struct {
		api, owner string // of the PodGroup
		ended      batchv1.JobConditionType
		unrecorded bool
		want       string
	}{
		"its Job makes its pods again":     {"batch/v1", "Job", "", false, v1alpha1.ReasonEvicted},
		"its Job has failed":               {"batch/v1", "Job", batchv1.JobFailed, false, v1alpha1.ReasonJobFailed},
		"it has, and nothing is recorded":  {"batch/v1", "Job", batchv1.JobFailed, true, v1alpha1.ReasonJobFailed},
		"its Job is complete":              {"batch/v1", "Job", batchv1.JobComplete, false, v1alpha1.ReasonGangIncomplete},
		"a JobSet makes failed Jobs again": {"jobset.x-k8s.io/v1alpha2", "JobSet", batchv1.JobFailed, false, v1alpha1.ReasonEvicted},
		"it is not known what made them":   {"", "", batchv1.JobFailed, false, v1alpha1.ReasonEvicted},
		"a Job of another API made them":   {"batch.volcano.sh/v1alpha1", "Job", batchv1.JobFailed, false, v1alpha1.ReasonEvicted},
	} {
		t.Run(sentence, func(t *testing.T) {
			pg := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}
			if c.owner != "" {
				pg.OwnerReferences = []metav1.OwnerReference{{APIVersion: c.api, Kind: c.owner, Name: "train", UID: "o", Controller: new(true)}}
			}
			pg.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonEvicted, Message: "nobody reads this", LastTransitionTime: metav1.NewTime(at)}}
			by := ""
			if !c.unrecorded {
				pg.Annotations = map[string]string{v1alpha1.EvictedAnnotation: evictionrecord.New(at, "gang ns/vip").Annotation()}
				by = " for gang ns/vip"
			}
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train"}}
			if c.ended != "" {
				job.Status.Conditions = []batchv1.JobCondition{{Type: c.ended, Status: v1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
			}
			r := &reconciler{follower: follower{client: fakeapi.New(pg, job).Build(), clock: testclock.NewFakePassiveClock(at.Add(time.Minute))}}
			result := r.mustEndEvicted(t, pg, nil, schedulingv1alpha1.PodGroupPending)
			if got := pg.Status.Conditions[0].Reason; got != c.want || (got == v1alpha1.ReasonEvicted) != (result.RequeueAfter == jobInterval) {
				t.Errorf("its reason is %s, want %s; it is looked at again after %v", got, c.want, result.RequeueAfter)
			}
			if c.want != v1alpha1.ReasonJobFailed {
				return
			}
			message := `Job "train" has failed (BackoffLimitExceeded), and makes no more pods; gang "ns/g" was evicted at 2030-01-01T00:00:00Z` + by
			object := &gangspec.PodGroupDescription{} // lockstep-controller takes the minimum of a gang without pods away
			f := gangstatus.FactsOf(gangspec.Key{Namespace: "ns", Name: "g"}, object, nil, &gangstate.History{})
			for _, status := range []coscheduling.PodGroupStatus{pg.Status, gangstatus.Next(pg, f, metav1.NewTime(at.Add(time.Hour)))} {
				if got := status.Conditions[0].Message; status.Phase != schedulingv1alpha1.PodGroupFailed || got != message {
					t.Errorf("phase %s, %s; want Failed, %s", status.Phase, got, message)
				}
			}
			if got := gangstatus.Of(f.Key, pg, nil, nil); got.Phase != schedulingv1alpha1.PodGroupFailed || got.Message != message {
				t.Errorf("it is listed as %s, %s; want Failed, %s", got.Phase, got.Message, message)
			}
			again := gangstatus.FactsOf(f.Key, object, []*v1.Pod{members.Pod(0, "waiting")}, &gangstate.History{})
			if got := gangstatus.Next(pg, again, metav1.NewTime(at.Add(time.Hour))); got.Phase == schedulingv1alpha1.PodGroupFailed || got.Conditions[0].Reason == v1alpha1.ReasonJobFailed {
				t.Errorf("with a new pod it is %s, %s", got.Phase, got.Conditions[0].Reason)
			}
		})
	}
}

// TestFailedWhilePodsEnd: a Job fails as soon as its pods are evicted, while they are still ending. What says which Job
// that is stays until they have ended, and then its failure is told.
func TestFailedWhilePodsEnd(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	recorded := evictionrecord.Record{At: at, Job: "train"}.Annotation()
	pg := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", Annotations: map[string]string{v1alpha1.EvictedAnnotation: recorded}}}
	pg.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonEvicted, Message: "nobody reads this", LastTransitionTime: metav1.NewTime(at)}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train"}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: v1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
	r := &reconciler{follower: follower{client: fakeapi.New(pg, job).Build(), clock: testclock.NewFakePassiveClock(at.Add(time.Minute))}}
	ending := members.Pod(0, "running")
	ending.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	r.mustEndEvicted(t, pg, []*v1.Pod{ending}, schedulingv1alpha1.PodGroupPending) // it writes how many pods there are
	result := r.mustEndEvicted(t, pg, []*v1.Pod{ending}, schedulingv1alpha1.PodGroupPending)
	if result.RequeueAfter != jobInterval || pg.Annotations[v1alpha1.EvictedAnnotation] == "" {
		t.Errorf("while a pod ends it is looked at again after %v, and says %v", result.RequeueAfter, pg.Annotations)
	}
	r.mustEndEvicted(t, pg, nil, schedulingv1alpha1.PodGroupPending)
	if got := pg.Status.Conditions[0].Reason; got != v1alpha1.ReasonJobFailed {
		t.Errorf("when it has ended the reason is %s, want %s", got, v1alpha1.ReasonJobFailed)
	}
}

// mustEndEvicted ends what a PodGroup with these pods says of its eviction, and reads the PodGroup again.
func (r *reconciler) mustEndEvicted(t *testing.T, pg *coscheduling.PodGroup, pods []*v1.Pod, phase schedulingv1alpha1.PodGroupPhase) reconcile.Result {
	t.Helper()
	r.jobs = r.client
	must.Succeed(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(pg), pg))
	f := gangstatus.FactsOf(gangspec.Key{Namespace: "ns", Name: "g"}, &gangspec.PodGroupDescription{Min: 2}, pods, &gangstate.History{})
	result, err := r.endEvicted(t.Context(), pg, f, phase)
	must.Succeed(t, err)
	must.Succeed(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(pg), pg))
	return result
}
