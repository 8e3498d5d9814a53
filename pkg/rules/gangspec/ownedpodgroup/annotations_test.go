package ownedpodgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func TestAnnotationsOfMPIJobs(t *testing.T) {
	for sentence, c := range map[string]struct {
		spec string
		want string
	}{
		"the launcher comes when the workers are ready": {
			spec: `{launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`, want: "4,1",
		},
		"whoever works in it": {
			spec: `{launcherCreationPolicy: WaitForWorkersReady, runLauncherAsWorker: true, mpiReplicaSpecs: {Launcher: {}, Worker: {replicas: 4}}}`, want: "4,1",
		},
		"or at once":                       {spec: `{launcherCreationPolicy: AtStartup, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`},
		"which is the default":             {spec: `{mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}`},
		"without workers it need not wait": {spec: `{launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {replicas: 1}}}`},
	} {
		t.Run(sentence, func(t *testing.T) {
			job := MPIJobSpec{}
			must.Succeed(t, yaml.Unmarshal([]byte(c.spec), &job))
			want := map[string]string{v1alpha1.StagesAnnotation: c.want}
			if diff := cmp.Diff(want, job.Annotations(&metav1.ObjectMeta{}, 5)); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// A TrainJob has the stages of its JobSet. Its PodGroup counts all pods, so that it asks for too many where fewer are
// made at a time.
func TestAnnotationsOfTrainJobs(t *testing.T) {
	for sentence, c := range map[string]struct {
		annotations map[string]string
		spec        string
		minMember   int32
		stages, min string
	}{
		"nodes come when both initializers have succeeded": {
			spec: `{replicatedJobs: [
				{name: dataset-initializer, template: {spec: {}}},
				{name: model-initializer, replicas: 1, template: {spec: {parallelism: 1, completions: 1}}},
				{name: node, dependsOn: [{name: dataset-initializer, status: Complete}, {name: model-initializer, status: Complete}],
				 template: {spec: {parallelism: 4, completions: 4}}}]}`,
			minMember: 6, stages: "2,4",
		},
		"a suspended one will have the same": {
			spec:      `{suspend: true, replicatedJobs: [{name: a}, {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}]}]}`,
			minMember: 3, stages: "1,2",
		},
		"without dependencies all come at once": {spec: `{replicatedJobs: [{name: a}, {name: b, replicas: 3}]}`, minMember: 4},
		"a chain is as many parts": {
			spec:      `{replicatedJobs: [{name: a}, {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}]}, {name: c, replicas: 3, dependsOn: [{name: b, status: Ready}]}]}`,
			minMember: 6, stages: "1,2,3",
		},
		"who waits for less comes with the first": {
			spec:      `{replicatedJobs: [{name: a}, {name: b, replicas: 2, dependsOn: [{name: a, status: Ready}]}, {name: c, replicas: 3}]}`,
			minMember: 6, stages: "4,2",
		},
		"replicas of jobs with several pods": {
			spec:      `{replicatedJobs: [{name: a, replicas: 2, template: {spec: {parallelism: 3}}}, {name: b, replicas: 2, dependsOn: [{name: a}], template: {spec: {parallelism: 8, completions: 5}}}]}`,
			minMember: 16, stages: "6,10",
		},
		"what has no pods is no part":      {spec: `{replicatedJobs: [{name: a, replicas: 0}, {name: b, dependsOn: [{name: a}]}]}`, minMember: 1},
		"in the order in which they stand": {spec: `{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, replicas: 2}, {name: b, replicas: 3}]}`, minMember: 5, stages: "2,3"},
		"in any order":                     {spec: `{startupPolicy: {startupPolicyOrder: AnyOrder}, replicatedJobs: [{name: a, replicas: 2}, {name: b, replicas: 3}]}`, minMember: 5},
		"what depends on nobody that is there, or on itself": {
			spec:      `{replicatedJobs: [{name: a, dependsOn: [{name: b}]}, {name: b, dependsOn: [{name: b}, {name: c}]}]}`,
			minMember: 2,
		},
		"nothing": {spec: `{}`, minMember: 1},
		"with exclusive placement the first pod of a Job comes before the others": {
			annotations: map[string]string{jobSetExclusive: "rack"},
			spec:        `{replicatedJobs: [{name: node, template: {spec: {parallelism: 4, completions: 4}}}]}`,
			minMember:   4, stages: "1,3",
		},
		"behind Jobs whose pods come and go nobody can count": {
			spec:      `{startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, template: {spec: {parallelism: 2, completions: 10}}}, {name: b, replicas: 3}]}`,
			minMember: 5, min: "2",
		},
		"also if they have indexes": {
			spec: `{replicatedJobs: [{name: a}, {name: b, dependsOn: [{name: a, status: Complete}], template: {spec: {parallelism: 2, completions: 10, completionMode: Indexed}}},
				{name: c, dependsOn: [{name: b, status: Complete}]}]}`,
			minMember: 4, stages: "1,2", min: "3",
		},
		"no more pods exist at a time than are to complete": {spec: `{replicatedJobs: [{name: a, template: {spec: {parallelism: 8, completions: 5}}}]}`, minMember: 8, min: "5"},
		"it may ask for fewer than are made":                {spec: `{replicatedJobs: [{name: a, replicas: 8}]}`, minMember: 5},
	} {
		t.Run(sentence, func(t *testing.T) {
			js := JobSetSpec{}
			must.Succeed(t, yaml.Unmarshal([]byte(c.spec), &js))
			want := map[string]string{v1alpha1.StagesAnnotation: c.stages, v1alpha1.MinAvailableAnnotation: c.min}
			if diff := cmp.Diff(want, js.Annotations(&metav1.ObjectMeta{Annotations: c.annotations}, c.minMember)); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsOfRayClusters(t *testing.T) {
	for sentence, c := range map[string]struct {
		spec string
		want int
	}{
		"the head alone":                             {`{}`, 1},
		"all groups":                                 {`{workerGroupSpecs: [{replicas: 2, numOfHosts: 1}, {replicas: 3, numOfHosts: 1}]}`, 6},
		"each replica on several hosts":              {`{workerGroupSpecs: [{replicas: 2, numOfHosts: 4}]}`, 9},
		"one host where the CRD knows no number":     {`{workerGroupSpecs: [{replicas: 2}]}`, 3},
		"no fewer than the least":                    {`{workerGroupSpecs: [{replicas: 1, minReplicas: 2, maxReplicas: 5, numOfHosts: 1}]}`, 3},
		"which is for those that say nothing":        {`{workerGroupSpecs: [{minReplicas: 2, maxReplicas: 5, numOfHosts: 1}]}`, 3},
		"no more than the most":                      {`{workerGroupSpecs: [{replicas: 7, minReplicas: 2, maxReplicas: 5, numOfHosts: 1}]}`, 6},
		"a group that is suspended has none":         {`{workerGroupSpecs: [{suspend: true, replicas: 2, minReplicas: 2, numOfHosts: 1}, {replicas: 1, numOfHosts: 1}]}`, 2},
		"a cluster that is suspended is to have all": {`{suspend: true, workerGroupSpecs: [{replicas: 2, numOfHosts: 1}]}`, 3},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := &RayClusterSpec{}
			must.Succeed(t, yaml.Unmarshal([]byte(c.spec), cluster))
			if got := cluster.pods(); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
