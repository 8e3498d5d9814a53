package ownedpodgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// said is members as the PodGroup has them.
type said struct {
	Min     int
	Stages  string
	Room    string
	LeftOut []string
}

// suspended is the minimum, in a table, for an owner that is suspended.
const suspended = -1

func (m Members) said() said {
	if m.Suspended {
		return said{Min: suspended}
	}
	return said{Min: m.Min, Stages: gangspec.StagesText(m.Stages), Room: resource.FromList(m.Resources).String(), LeftOut: m.LeftOut}
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
}

func TestOfJob(t *testing.T) {
	for sentence, c := range map[string]struct {
		job      string
		standing int
		want     int
	}{
		"a Job that says nothing has one pod":                          {"{}", 0, 1},
		"its parallelism":                                              {"{spec: {parallelism: 4}}", 0, 4},
		"no more than are to complete":                                 {"{spec: {parallelism: 4, completions: 2}}", 0, 2},
		"fewer at a time than are to complete":                         {"{spec: {parallelism: 4, completions: 10}}", 0, 4},
		"what has succeeded and is there counts as members":            {"{spec: {parallelism: 4, completions: 4}, status: {succeeded: 3}}", 3, 4},
		"what has succeeded and is gone does not come again":           {"{spec: {parallelism: 4, completions: 10}, status: {succeeded: 8}}", 0, 2},
		"the status may be older than the pods":                        {"{spec: {parallelism: 4, completions: 4}, status: {succeeded: 1}}", 2, 4},
		"one of which nothing is to come asks for nothing":             {"{spec: {parallelism: 0}}", 0, 0},
		"nor one of which all has succeeded":                           {"{spec: {parallelism: 2, completions: 2}, status: {succeeded: 2}}", 0, 0},
		"what succeeds of a work queue does not say how many come":     {"{spec: {parallelism: 3}, status: {succeeded: 1}}", 0, 3},
		"more may have succeeded than completions say, when lowered":   {"{spec: {parallelism: 2, completions: 2}, status: {succeeded: 5}}", 0, 0},
		"of what it makes when it is resumed nobody knows the number":  {"{spec: {parallelism: 2, suspend: true}, status: {succeeded: 1}}", 1, suspended},
		"indexes that have failed for good do not come again":          {"{spec: {parallelism: 8, completions: 8, backoffLimitPerIndex: 1}, status: {succeeded: 1, failedIndexes: '0,3-5'}}", 1, 4},
		"what nobody writes of them counts for nothing":                {"{spec: {parallelism: 8, completions: 8}, status: {failedIndexes: 5-3}}", 0, 8},
		"its pods say that fewer are enough":                           {"{spec: {parallelism: 8, completions: 8, template: {metadata: {annotations: {gang.scheduling.koordinator.sh/min-available: '4'}}}}}", 0, 4},
		"its pods ask for more than there are":                         {"{spec: {parallelism: 8, completions: 8, template: {metadata: {annotations: {gang.scheduling.koordinator.sh/min-available: '9'}}}}}", 0, 8},
		"of elastic indexed Jobs completions and parallelism go along": {"{spec: {parallelism: 8, completions: 8, completionMode: Indexed}}", 0, 8},
	} {
		t.Run(sentence, func(t *testing.T) {
			job := &batchv1.Job{}
			read(t, c.job, job)
			if diff := cmp.Diff(said{Min: c.want}, ofJob(job, c.standing).said()); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfJobSet(t *testing.T) {
	for sentence, c := range map[string]struct {
		jobSet string
		// in are the replicated jobs that are in the gang; nil for all.
		in   map[string]bool
		want said
	}{
		"replicas times parallelism of all": {jobSet: `
spec:
  replicatedJobs:
  - {name: driver, template: {spec: {}}}
  - {name: workers, replicas: 2, template: {spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 9}},
		"of what it makes when it is resumed nobody knows the number": {jobSet: `
spec:
  suspend: true
  replicatedJobs:
  - {name: driver, template: {spec: {}}}`,
			want: said{Min: suspended}},
		"only those that are in the gang": {jobSet: `
spec:
  replicatedJobs:
  - {name: driver, template: {spec: {}}}
  - {name: workers, replicas: 2, template: {spec: {parallelism: 4, completions: 4}}}`,
			in: map[string]bool{"workers": true}, want: said{Min: 8}},
		"none of a replicated job without replicas": {jobSet: `
spec:
  replicatedJobs:
  - {name: driver, replicas: 0, template: {spec: {}}}`,
			want: said{}},
		"who waits until others have completed comes after them": {jobSet: `
spec:
  replicatedJobs:
  - {name: data, template: {spec: {template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}}}
  - {name: model, template: {spec: {}}}
  - {name: node, replicas: 2, dependsOn: [{name: data, status: Complete}, {name: model, status: Complete}], template: {spec: {parallelism: 3, completions: 3}}}`,
			want: said{Min: 8, Stages: "2,6"}},
		"who waits until others run needs its room from the beginning": {jobSet: `
spec:
  replicatedJobs:
  - {name: server, template: {spec: {template: {spec: {containers: [{resources: {requests: {cpu: 2}}}]}}}}}
  - {name: node, replicas: 2, dependsOn: [{name: server, status: Ready}], template: {spec: {parallelism: 3, completions: 3, template: {spec: {containers: [{resources: {limits: {cpu: 1, nvidia.com/gpu: 1}, requests: {cpu: 500m}}}]}}}}}`,
			want: said{Min: 7, Stages: "1,6", Room: "5 cpu, 6 nvidia.com/gpu"}},
		"a chain has a stage for each": {jobSet: `
spec:
  replicatedJobs:
  - {name: a, template: {spec: {}}}
  - {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}], template: {spec: {}}}
  - {name: c, replicas: 3, dependsOn: [{name: b, status: Complete}], template: {spec: {}}}`,
			want: said{Min: 6, Stages: "1,2,3"}},
		"room is for those that run at the same time": {jobSet: `
spec:
  replicatedJobs:
  - {name: data, template: {spec: {template: {spec: {containers: [{resources: {requests: {memory: 9}}}]}}}}}
  - {name: server, dependsOn: [{name: data, status: Complete}], template: {spec: {template: {spec: {containers: [{resources: {requests: {cpu: 2}}}]}}}}}
  - {name: node, dependsOn: [{name: server, status: Ready}], template: {spec: {parallelism: 3, completions: 3, template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}}}}`,
			want: said{Min: 5, Stages: "1,1,3", Room: "5 cpu"}},
		"stages of others are left out": {jobSet: `
spec:
  replicatedJobs:
  - {name: a, template: {spec: {}}}
  - {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}], template: {spec: {}}}`,
			in: map[string]bool{"b": true}, want: said{Min: 2}},
		"in order means one after the other": {jobSet: `
spec:
  startupPolicy: {startupPolicyOrder: InOrder}
  replicatedJobs:
  - {name: a, template: {spec: {}}}
  - {name: b, replicas: 2, template: {spec: {}}}`,
			want: said{Min: 3, Stages: "1,2"}},
		"behind Jobs whose pods come and go nobody can count": {jobSet: `
spec:
  replicatedJobs:
  - {name: prepare, template: {spec: {parallelism: 2, completions: 10}}}
  - {name: train, replicas: 2, dependsOn: [{name: prepare, status: Complete}], template: {spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 2, LeftOut: []string{"train"}}},
		"which does not matter for the last": {jobSet: `
spec:
  replicatedJobs:
  - {name: prepare, template: {spec: {}}}
  - {name: train, dependsOn: [{name: prepare, status: Complete}], template: {spec: {parallelism: 4, completions: 40}}}`,
			want: said{Min: 5, Stages: "1,4"}},
		"with exclusive placement the first pod of each Job comes before the others": {jobSet: `
metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}
spec:
  replicatedJobs:
  - {name: workers, replicas: 3, template: {spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 12, Stages: "3,9"}},
		"of one replicated job only": {jobSet: `
spec:
  replicatedJobs:
  - {name: driver, template: {spec: {parallelism: 2}}}
  - {name: workers, replicas: 3, template: {metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}, spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 14, Stages: "5,9"}},
		"nodes are labelled only for who asks for both in one place": {jobSet: `
metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}
spec:
  replicatedJobs:
  - {name: workers, replicas: 3, template: {metadata: {annotations: {alpha.jobset.sigs.k8s.io/node-selector: "true"}}, spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 12, Stages: "3,9"}},
		"the pods themselves may ask for it": {jobSet: `
spec:
  replicatedJobs:
  - {name: workers, replicas: 3, template: {spec: {parallelism: 4, completions: 4, template: {metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}}}}}`,
			want: said{Min: 12, Stages: "3,9"}},
		"who depends on nobody that is there is made with the first": {jobSet: `
spec:
  replicatedJobs:
  - {name: a, template: {spec: {}}}
  - {name: b, dependsOn: [{name: none, status: Complete}], template: {spec: {}}}`,
			want: said{Min: 2}},
		"but not where nodes are labelled for it": {jobSet: `
metadata: {annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack, alpha.jobset.sigs.k8s.io/node-selector: "true"}}
spec:
  replicatedJobs:
  - {name: workers, replicas: 3, template: {spec: {parallelism: 4, completions: 4}}}`,
			want: said{Min: 12}},
	} {
		t.Run(sentence, func(t *testing.T) {
			js := &jobSet{}
			read(t, c.jobSet, js)
			got := ofJobSet(js, func(rj *replicatedJob) bool { return c.in == nil || c.in[rj.Name] })
			if diff := cmp.Diff(c.want, got.said()); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfGroup(t *testing.T) {
	const templates = `leaderTemplate: {spec: {containers: [{resources: {requests: {cpu: 2}}}]}}, workerTemplate: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}`
	for sentence, c := range map[string]struct {
		lws string
		// pods are the pods of the group, by index, that are in the gang; all pods where it is empty.
		pods []string
		// size is the size that the leader has.
		size string
		want said
	}{
		"a group is of its size": {lws: "{spec: {replicas: 3, leaderWorkerTemplate: {size: 4}}}", want: said{Min: 4}},
		"or of that which its leader says, while an update rolls out": {lws: "{spec: {leaderWorkerTemplate: {size: 4}}}", size: "6", want: said{Min: 6}},
		"without a size it is the leader":                             {lws: "{spec: {}}", want: said{Min: 1}},
		"workers that come when the leader is ready come after it, into room that was there from the beginning": {
			lws:  "{spec: {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 4, " + templates + "}}}",
			want: said{Min: 4, Stages: "1,3", Room: "2 cpu, 24 nvidia.com/gpu"}},
		"so do those that come when the leader has a node": {
			lws:  "{metadata: {annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: rack}}, spec: {startupPolicy: LeaderCreated, leaderWorkerTemplate: {size: 2}}}",
			want: said{Min: 2, Stages: "1,1"}},
		"workers alone are a gang where only their template asks for it": {
			lws:  "{spec: {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 4, leaderTemplate: {}, workerTemplate: {metadata: {annotations: {scheduling.lockstep.dev/gang: Owner}}}}}}",
			pods: []string{"1", "2"}, want: said{Min: 3}},
		"the leader is in it where a policy has written that on it": {
			lws:  "{spec: {leaderWorkerTemplate: {size: 4, leaderTemplate: {}, workerTemplate: {metadata: {annotations: {scheduling.lockstep.dev/gang: Owner}}}}}}",
			pods: []string{"0"}, size: "4", want: said{Min: 4}},
		"who opts out is not in it": {
			lws:  "{spec: {leaderWorkerTemplate: {size: 4, leaderTemplate: {metadata: {annotations: {scheduling.lockstep.dev/gang: \"\"}}}}}}",
			pods: []string{"1"}, want: said{Min: 3}},
		"a leader alone has no stages": {lws: "{spec: {startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 1}}}", want: said{Min: 1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			lws := &leaderWorkerSet{}
			read(t, c.lws, lws)
			if c.pods == nil {
				c.pods = []string{"0", "1"}
			}
			var pods []*v1.Pod
			for _, index := range c.pods {
				pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
					Labels: map[string]string{v1alpha1.LeaderWorkerIndexLabel: index}, Annotations: map[string]string{groupSize: c.size}}})
			}
			if diff := cmp.Diff(c.want, ofGroup(lws, groupOf(lws, pods)).said()); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// Which replicated jobs are in a gang follows from their templates, and from what a policy writes on pods.
func TestAsks(t *testing.T) {
	js := &jobSet{}
	read(t, `
metadata: {name: train}
spec:
  replicatedJobs:
  - {name: plain, template: {spec: {}}}
  - {name: whole, template: {spec: {template: {metadata: {annotations: {scheduling.lockstep.dev/gang: Owner}}}}}}
  - {name: apart, template: {spec: {template: {metadata: {annotations: {scheduling.lockstep.dev/gang: OwnerPart}}}}}}
  - {name: out, template: {spec: {template: {metadata: {annotations: {scheduling.lockstep.dev/gang: ""}}}}}}
  - {name: own, template: {spec: {template: {metadata: {labels: {scheduling.x-k8s.io/pod-group: own}}}}}}`, js)
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want map[string]string
	}{
		"templates say it": {
			pods: []*v1.Pod{pod("whole", "Owner")},
			want: map[string]string{"plain": "", "whole": "jobset.train", "apart": "jobset.train.apart", "out": "", "own": ""}},
		"or pods do, where the template does not": {
			pods: []*v1.Pod{pod("whole", "Owner"), pod("plain", "OwnerPart")},
			want: map[string]string{"plain": "jobset.train.plain", "whole": "jobset.train", "apart": "jobset.train.apart", "out": "", "own": ""}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := map[string]string{}
			for i := range js.Spec.ReplicatedJobs {
				rj := &js.Spec.ReplicatedJobs[i]
				got[rj.Name] = asks(js, rj, askedByPods(js, c.pods))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("gangs (-want +got):\n%s", diff)
			}
		})
	}
}

func pod(part, asks string) *v1.Pod {
	p := &v1.Pod{}
	p.Labels = map[string]string{v1alpha1.JobSetNameLabel: "train", v1alpha1.ReplicatedJobNameLabel: part}
	p.Annotations = map[string]string{v1alpha1.GangAnnotation: asks}
	return p
}

// A PodGroup that is as it should be is not written, and what users add to it stays.
func TestChanges(t *testing.T) {
	want := Desired{
		Members: Members{Min: 4, Stages: []int{1, 3}, Resources: resource.Vector{"cpu": 4000}.List()},
		Labels:  map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController},
	}
	want.Owner.UID = types.UID("u")
	group := &coscheduling.PodGroup{}
	group.Labels = map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController, "team": "a"}
	group.Annotations = map[string]string{v1alpha1.StagesAnnotation: "1,3", v1alpha1.RequiredTopologyAnnotation: "rack"}
	group.OwnerReferences = append(group.OwnerReferences, want.Owner)
	group.Spec.MinMember = 4
	group.Spec.MinResources = resource.Vector{"cpu": 4000}.List()
	if got := want.Changes(group); len(got) > 0 {
		t.Errorf("nothing differs, and %v is written", got)
	}
	want.Min, want.Stages, want.Resources = 3, nil, nil
	diff := cmp.Diff(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.StagesAnnotation: nil}},
		"spec":     map[string]any{"minMember": 3, "minResources": map[v1.ResourceName]any{"cpu": nil}},
	}, want.Changes(group))
	if diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestSucceeded: members of a Job count while their objects are there, also if they ended because they are being
// deleted. Those of another Job of the same name do not.
func TestSucceeded(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train", UID: "again"}}
	pod := func(owner types.UID, phase v1.PodPhase, deleted *metav1.Time) *v1.Pod {
		ref := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: owner, Controller: new(true)}
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{ref}, DeletionTimestamp: deleted}, Status: v1.PodStatus{Phase: phase}}
	}
	now := new(metav1.Now())
	pods := []*v1.Pod{
		pod("again", v1.PodSucceeded, nil), pod("again", v1.PodSucceeded, now), pod("again", v1.PodRunning, nil), pod("again", v1.PodFailed, now),
		pod("first", v1.PodSucceeded, nil),
	}
	pods[1].Finalizers = []string{batchv1.JobTrackingFinalizer}
	counted := pod("again", v1.PodSucceeded, now) // as failed, when it was deleted
	pods = append(pods, counted)
	if got := succeeded(pods, job); got != 2 {
		t.Errorf("%d succeeded, want 2", got)
	}
}
