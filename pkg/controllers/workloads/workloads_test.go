package workloads

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// A copy shares nothing with what it is a copy of.
func TestDeepCopy(t *testing.T) {
	cases := map[string]struct {
		spec   string
		change func(of runtime.Object)
	}{
		"MPIJob": {`{mpiReplicaSpecs: {Worker: {replicas: 2}}}`, func(of runtime.Object) {
			job := &of.(*mpiJobList).Items[0]
			job.Labels["a"] = "c"
			clear(job.Spec.MPIReplicaSpecs)
		}},
		"JobSet": {`{replicatedJobs: [{name: a, replicas: 2, dependsOn: [{name: b}], template: {spec: {parallelism: 3, completions: 4}}}]}`, func(of runtime.Object) {
			set := &of.(*jobSetList).Items[0]
			set.Labels["a"] = "c"
			replicated := &set.Spec.ReplicatedJobs[0]
			replicated.Name, replicated.DependsOn[0].Name = "c", "c"
			*replicated.Replicas, *replicated.Template.Spec.Parallelism, *replicated.Template.Spec.Completions = 0, 0, 0
		}},
		"RayCluster": {`{workerGroupSpecs: [{suspend: true, replicas: 1, minReplicas: 2, maxReplicas: 3, numOfHosts: 4}, {}]}`, func(of runtime.Object) {
			cluster := &of.(*rayClusterList).Items[0]
			cluster.Labels["a"] = "c"
			*cluster.Spec.WorkerGroupSpecs[0].MaxReplicas, cluster.Spec.WorkerGroupSpecs[1].Replicas = 0, 1
		}},
	}
	for _, w := range workloads {
		t.Run(w.kind.Kind, func(t *testing.T) {
			c := cases[w.kind.Kind]
			read := func() runtime.Object {
				list := w.list.DeepCopyObject()
				must.Succeed(t, yaml.UnmarshalStrict([]byte(`{items: [{metadata: {name: a, labels: {a: b}}, spec: `+c.spec+`}]}`), list))
				return list
			}
			list := read()
			clone := list.DeepCopyObject()
			if diff := cmp.Diff(list, clone); diff != "" {
				t.Fatalf("copy (-of +copy):\n%s", diff)
			}
			c.change(clone)
			if diff := cmp.Diff(read(), list); diff != "" {
				t.Errorf("the copy shares what it is a copy of (-want +got):\n%s", diff)
			}
		})
	}
}
