package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestLackingJobs: who asks for a gang without its minimum is told if its Job has failed, is suspended, makes too few
// pods, or may not make them. Of one that was evicted only the first is told.
func TestLackingJobs(t *testing.T) {
	failed := func(status v1.ConditionStatus) batchv1.Job {
		return batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailed, Status: status, Reason: "BackoffLimitExceeded"}}}}
	}
	hasFailed := []string{`Job "train" has failed since (BackoffLimitExceeded), and makes no more pods: make it again`}
	for name, c := range map[string]struct {
		reason string
		job    batchv1.Job
		quota  bool
		want   []string
	}{
		"evicted, and failed":   {v1alpha1.ReasonEvicted, failed(v1.ConditionTrue), false, hasFailed},
		"has not failed":        {v1alpha1.ReasonEvicted, failed(v1.ConditionFalse), true, nil},
		"evicted by suspend":    {v1alpha1.ReasonEvicted, batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}, false, nil},
		"incomplete, failed":    {v1alpha1.ReasonGangIncomplete, failed(v1.ConditionTrue), true, hasFailed},
		"makes enough":          {v1alpha1.ReasonGangIncomplete, batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(5))}}, false, nil},
		"suspended":             {v1alpha1.ReasonGangIncomplete, batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}, false, []string{`Job "train" is suspended, and makes no pods until its spec.suspend is false`}},
		"makes too few":         {v1alpha1.ReasonGangIncomplete, batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(2))}}, true, []string{`Job "train" makes 2 pods at a time, by its parallelism and completions, and the gang needs 5`}},
		"has fewer completions": {v1alpha1.ReasonGangIncomplete, batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(5)), Completions: new(int32(3))}}, false, []string{`Job "train" makes 3 pods at a time, by its parallelism and completions, and the gang needs 5`}},
		"over its quota":        {v1alpha1.ReasonGangIncomplete, batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(5))}}, true, []string{`Job "train" could not make a pod: exceeded quota: two`}},
	} {
		read := func(_ context.Context, path string, into any) error {
			switch o := into.(type) {
			case *batchv1.Job:
				if path != "/apis/batch/v1/namespaces/a/jobs/train" {
					return fmt.Errorf("there is no %s", path)
				}
				*o = c.job
				o.Namespace, o.Name, o.UID = "a", "train", "uid"
			case *v1.EventList:
				if !strings.HasPrefix(path, "/api/v1/namespaces/a/events?") || !strings.Contains(path, "involvedObject.uid%3Duid%2Creason%3DFailedCreate") {
					return fmt.Errorf("there is no %s", path)
				}
				for i, message := range []string{"one", "two"} {
					if c.quota {
						o.Items = append(o.Items, v1.Event{Message: "exceeded quota: " + message, LastTimestamp: metav1.Unix(int64(i), 0)})
					}
				}
			}
			return nil
		}
		owned := metav1.ObjectMeta{Namespace: "a", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "train", Controller: new(true)}}}
		got := lackingJobs(t.Context(), read, &view.Gang{Namespace: "a", Minimum: 5, Reason: c.reason},
			[]*coscheduling.PodGroup{{ObjectMeta: owned}}, []*v1.Pod{{ObjectMeta: owned}})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUnknown: the name of an owner whose pods are one gang means that gang; a suspended Job is told.
func TestUnknown(t *testing.T) {
	suspends := false
	read := func(_ context.Context, _ string, into any) error {
		switch o := into.(type) {
		case *batchv1.Job:
			o.Namespace, o.Name, o.Spec.Suspend = "a", "train", &suspends
			o.Spec.Template.Annotations = map[string]string{v1alpha1.GangAnnotation: v1alpha1.GangOwner}
		case *coscheduling.PodGroupList:
			for _, name := range []string{"job.train", "job.both", "lws.both"} {
				o.Items = append(o.Items, coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}})
			}
		}
		return nil
	}
	for name, want := range map[string]string{
		"a/train": `there is no gang "a/train": did you mean "a/job.train"?`,
		"a/both":  `there is no gang "a/both": did you mean "job.both"?`,
	} {
		err := (&options{}).unknown(t.Context(), read, name, "")
		if answers := errors.As(err, new(*ownersGangError)); err.Error() != want || answers != (name == "a/train") {
			t.Errorf("of %s it says %v, want %s", name, err, want)
		}
	}
	suspends = true
	const want = `there is no gang "a/job.train" yet: Job "train" is suspended, and makes no pods until its spec.suspend is false`
	if err := (&options{}).unknown(t.Context(), read, "a/job.train", ""); err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

// TestUnknownIsAJob: who names no gang, but a Job, is told what its pods are in.
func TestUnknownIsAJob(t *testing.T) {
	read := func(annotations map[string]string) reader {
		return func(_ context.Context, path string, into any) error {
			switch o := into.(type) {
			case *batchv1.Job:
				if !strings.HasSuffix(path, "/jobs/train") {
					return apierrors.NewNotFound(schema.GroupResource{Resource: "jobs"}, "")
				}
				o.Namespace, o.Name, o.Spec.Template.Annotations = "a", "train", annotations
			case *batchv1.JobList:
				o.Items = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "train"}}}
			}
			return nil
		}
	}
	err := (&options{}).unknown(t.Context(), read(map[string]string{v1alpha1.GangNameAnnotation: "big"}), "a/train", "")
	if owners := (*ownersGangError)(nil); !errors.As(err, &owners) || owners.gang != "a/big" {
		t.Errorf("of a Job whose pods are in gang a/big it says %v", err)
	}
	for want, c := range map[string]struct {
		annotations map[string]string
		err         func(reader) error
	}{
		"job a/train is in no gang: no label, annotation or field of its pods names one": {nil,
			func(read reader) error { return (&options{}).unknown(t.Context(), read, "a/train", "") }},
		`there is no gang "a/train", nor any other in namespace a; GANG is NAME, NAMESPACE/NAME, job/NAME, pod/NAME or podgroup/NAME`: {
			map[string]string{v1alpha1.GangNameAnnotation: "train"},
			func(read reader) error { return (&options{}).unknown(t.Context(), read, "a/train", "") }},
		`there is no Job a/trai: did you mean "train"?`: {nil, func(read reader) error {
			_, err := gangOf(t.Context(), read, "job", "a", "trai")
			return err
		}},
	} {
		if err := c.err(read(c.annotations)); err == nil || err.Error() != want {
			t.Errorf("it says %v, want %s", err, want)
		}
	}
}
