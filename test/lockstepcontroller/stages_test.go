package lockstepcontroller_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const mpiJobs = `
kubectl apply -f - <<EOF
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mpijobs.kubeflow.org}
spec:
  group: kubeflow.org
  names: {kind: MPIJob, plural: mpijobs, singular: mpijob}
  scope: Namespaced
  versions:
  - {name: v2beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
EOF
until kubectl wait crd mpijobs.kubeflow.org --for=condition=Established --timeout 20s; do sleep 0.1; done`

const mpiJobWithPodGroup = `
kubectl apply -n stages -f - <<EOF
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: train}
spec: {launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}}
EOF
uid=$(kubectl get mpijob -n stages train -o jsonpath='{.metadata.uid}')
kubectl apply -n stages -f - <<EOF
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata:
  name: train
  ownerReferences: [{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, name: train, controller: true, uid: $uid}]
spec: {minMember: 5}
EOF`

// testStages: the kind of a workload comes when the controller runs already. Its role lets it read workloads and write
// the annotation.
func testStages(t *testing.T, c *localcluster.Cluster) {
	newNamespace(t, c, "stages")
	for _, line := range []string{mpiJobs, mpiJobWithPodGroup} {
		if out, err := c.Shell(testContext(t), line); err != nil {
			t.Fatalf("running %s: %v\n%s", line, err, out)
		}
	}
	waitForStages(t, c, "4,1")
	if _, err := c.Kubectl(testContext(t), "patch", "mpijob", "-n", "stages", "train", "--type", "merge", "--patch", `{"spec": {"launcherCreationPolicy": "AtStartup"}}`); err != nil {
		t.Fatal(err)
	}
	waitForStages(t, c, "")
}

func waitForStages(t *testing.T, c *localcluster.Cluster, want string) {
	t.Helper()
	await.NoError(t, "the PodGroup has the stages of its MPIJob", func() error {
		got, err := c.Kubectl(testContext(t), "get", "podgroup", "-n", "stages", "train", "-o", `jsonpath={.metadata.annotations.scheduling\.lockstep\.dev/stages}`)
		if err == nil && got != want {
			err = fmt.Errorf("stages %q, want %q", got, want)
		}
		return err
	})
}
