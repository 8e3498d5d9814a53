package workloads

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

// ofRayCluster returns the metadata of a PodGroup as KubeRay makes it: its owner is not its controller.
func ofRayCluster() metav1.ObjectMeta {
	meta := controlledBy("ray.io/v1", "RayCluster", "ray")
	meta.OwnerReferences[0].Controller = nil
	return meta
}

// ofMembers returns the PodGroup of a RayCluster.
func ofMembers(minimum int32) *coscheduling.PodGroup {
	pg := &coscheduling.PodGroup{ObjectMeta: ofRayCluster()}
	pg.Spec.MinMember = minimum
	return pg
}

func ray(uid types.UID, workers int32) *rayCluster {
	return makeObject[ownedpodgroup.RayClusterSpec](metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid},
		fmt.Sprintf("{workerGroupSpecs: [{replicas: %d, numOfHosts: 1}]}", workers))
}

func newRayStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	s := newStage(t, objects...)
	s.annotation = v1alpha1.MinAvailableAnnotation
	return s
}

func TestMinimumFollowsARayCluster(t *testing.T) {
	cluster := ray("ray", 3)
	s := newRayStage(t, ofMembers(4), cluster)
	for _, step := range []struct {
		workers int32
		want    string
		writes  int
	}{
		{3, "", 0}, {1, "2", 1}, {0, "1", 2}, {2, "3", 3}, {3, "", 4}, {5, "", 4}, {2, "3", 5},
	} {
		cluster.Spec.WorkerGroupSpecs[0].Replicas = step.workers
		s.update(cluster)
		s.expect(step.want, step.writes)
	}
	pg := s.podGroup()
	pg.Spec.MinMember = 2
	s.update(pg)
	s.expect("", 6)
}

func TestMinimumThatUsersWroteStands(t *testing.T) {
	pg := ofMembers(4)
	pg.Annotations = map[string]string{v1alpha1.MinAvailableAnnotation: "4"}
	s := newRayStage(t, pg, ray("ray", 1))
	s.expect("4", 0)

	pg = s.podGroup()
	delete(pg.Annotations, v1alpha1.MinAvailableAnnotation)
	s.update(pg)
	s.expect("2", 1)
	pg = s.podGroup()
	pg.Annotations[v1alpha1.MinAvailableAnnotation] = "3"
	s.update(pg)
	s.expect("3", 1)
}

func TestMinimumOfOtherPodGroupsStands(t *testing.T) {
	nobodys := ofMembers(4)
	nobodys.OwnerReferences = nil
	for sentence, objects := range map[string][]client.Object{
		"of nobody":                  {nobodys, ray("ray", 1)},
		"of a RayCluster that was":   {ofMembers(4), ray("other", 1)},
		"of a RayCluster not cached": {ofMembers(4)},
	} {
		t.Run(sentence, func(t *testing.T) { newRayStage(t, objects...).expect("", 0) })
	}
}
