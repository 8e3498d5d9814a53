package workloads

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestPartsOfMPIJobs(t *testing.T) {
	for sentence, c := range map[string]struct {
		spec string
		want []int
	}{
		"the launcher comes when the workers are ready": {
			spec: `{launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`, want: []int{4, 1},
		},
		"whoever works in it": {
			spec: `{launcherCreationPolicy: WaitForWorkersReady, runLauncherAsWorker: true, mpiReplicaSpecs: {Launcher: {}, Worker: {replicas: 4}}}`, want: []int{4, 1},
		},
		"or at once":                       {spec: `{launcherCreationPolicy: AtStartup, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`},
		"which is the default":             {spec: `{mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`},
		"without workers it need not wait": {spec: `{launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {replicas: 1}}}`},
	} {
		t.Run(sentence, func(t *testing.T) { testParts(t, &mpiJobSpec{}, c.spec, c.want) })
	}
}

func TestPartsOfJobSets(t *testing.T) {
	for sentence, c := range map[string]struct {
		spec string
		want []int
	}{
		"nodes come when both initializers have succeeded": {
			spec: `{replicatedJobs: [
				{name: dataset-initializer, template: {spec: {}}},
				{name: model-initializer, replicas: 1, template: {spec: {parallelism: 1, completions: 1}}},
				{name: node, dependsOn: [{name: dataset-initializer, status: Complete}, {name: model-initializer, status: Complete}],
				 template: {spec: {parallelism: 4, completions: 4}}}]}`,
			want: []int{2, 4},
		},
		"without dependencies all come at once": {spec: `{replicatedJobs: [{name: a}, {name: b, replicas: 3}]}`},
		"a chain is as many parts": {
			spec: `{replicatedJobs: [{name: a}, {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}]}, {name: c, replicas: 3, dependsOn: [{name: b, status: Ready}]}]}`,
			want: []int{1, 2, 3},
		},
		"who waits for less comes with the first": {
			spec: `{replicatedJobs: [{name: a}, {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}]}, {name: c, replicas: 3}]}`,
			want: []int{4, 2},
		},
		"replicas of jobs with several pods": {
			spec: `{replicatedJobs: [{name: a, replicas: 2, template: {spec: {parallelism: 3}}}, {name: b, replicas: 2, dependsOn: [{name: a}], template: {spec: {parallelism: 8, completions: 5}}}]}`,
			want: []int{6, 10},
		},
		"what has no pods is no part":      {spec: `{replicatedJobs: [{name: a, replicas: 0}, {name: b, dependsOn: [{name: a}]}]}`},
		"in the order in which they stand": {spec: `{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, replicas: 2}, {name: b, replicas: 3}]}`, want: []int{2, 3}},
		"in any order":                     {spec: `{startupPolicy: {startupPolicyOrder: AnyOrder}, replicatedJobs: [{name: a, replicas: 2}, {name: b, replicas: 3}]}`},
		"what depends on nobody that is there, or on itself": {
			spec: `{replicatedJobs: [{name: a, dependsOn: [{name: b}]}, {name: b, dependsOn: [{name: b}, {name: c}]}]}`,
		},
		"nothing": {spec: `{}`},
	} {
		t.Run(sentence, func(t *testing.T) { testParts(t, &jobSetSpec{}, c.spec, c.want) })
	}
}

func testParts(t *testing.T, w interface{ parts() []int }, spec string, want []int) {
	t.Helper()
	must.Succeed(t, yaml.Unmarshal([]byte(spec), w))
	if got := w.parts(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDeepCopy(t *testing.T) {
	full := func() (*mpiJobList, *jobSetList) {
		meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}
		return &mpiJobList{Items: []mpiJob{{ObjectMeta: meta, Spec: mpiJobSpec{MPIReplicaSpecs: map[string]replicaSpec{"Worker": {Replicas: 2}}}}}},
			&jobSetList{Items: []jobSet{{ObjectMeta: meta, Spec: jobSetSpec{ReplicatedJobs: []replicatedJob{{
				Name: "a", Replicas: ptr.To[int32](2), DependsOn: []dependency{{Name: "b"}},
				Template: jobTemplate{Spec: jobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](4)}},
			}}}}}}
	}
	jobs, sets := full()
	job, set := jobs.DeepCopyObject().(*mpiJobList), sets.DeepCopyObject().(*jobSetList)
	if diff := cmp.Diff(jobs, job) + cmp.Diff(sets, set); diff != "" {
		t.Fatalf("copy (-of +copy):\n%s", diff)
	}
	job.Items[0].Labels["a"], job.Items[0].Spec.MPIReplicaSpecs["Worker"] = "c", replicaSpec{}
	replicated := &set.Items[0].Spec.ReplicatedJobs[0]
	replicated.Name, replicated.DependsOn[0].Name = "c", "c"
	*replicated.Replicas, *replicated.Template.Spec.Parallelism, *replicated.Template.Spec.Completions = 0, 0, 0
	wantJobs, wantSets := full()
	wantSets.Items[0].Labels = sets.Items[0].Labels
	wantJobs.Items[0].Labels = jobs.Items[0].Labels
	if diff := cmp.Diff(wantJobs, jobs) + cmp.Diff(wantSets, sets); diff != "" || jobs.Items[0].Labels["a"] != "b" {
		t.Errorf("the copy shares what it is a copy of (-want +got):\n%s", diff)
	}
}
