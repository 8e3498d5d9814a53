package workloads

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
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
	return &rayCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid},
		Spec:       rayClusterSpec{WorkerGroupSpecs: []workerGroup{{Replicas: workers, NumOfHosts: 1}}},
	}
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
			cluster := &rayClusterSpec{}
			must.Succeed(t, yaml.Unmarshal([]byte(c.spec), cluster))
			if got := cluster.pods(); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestDeepCopyOfRayClusters(t *testing.T) {
	full := func() *rayClusterList {
		meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}
		groups := []workerGroup{{Suspend: true, Replicas: 1, MinReplicas: 2, MaxReplicas: ptr.To[int32](3), NumOfHosts: 4}, {}}
		return &rayClusterList{Items: []rayCluster{{ObjectMeta: meta, Spec: rayClusterSpec{WorkerGroupSpecs: groups}}}}
	}
	list := full()
	clone, ok := list.DeepCopyObject().(*rayClusterList)
	if diff := cmp.Diff(list, clone); !ok || diff != "" {
		t.Fatalf("copy (-of +copy):\n%s", diff)
	}
	cluster := &clone.Items[0]
	cluster.Labels["a"] = "c"
	*cluster.Spec.WorkerGroupSpecs[0].MaxReplicas, cluster.Spec.WorkerGroupSpecs[1].Replicas = 0, 1
	if diff := cmp.Diff(full(), list); diff != "" {
		t.Errorf("the copy shares what it is a copy of (-want +got):\n%s", diff)
	}
}
