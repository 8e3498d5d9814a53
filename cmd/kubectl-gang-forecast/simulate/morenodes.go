package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// poolLabels are the labels by which clouds and autoscalers name the pools of nodes.
var poolLabels = []string{
	"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
	"kubernetes.azure.com/agentpool", "agentpool",
	"node.kubernetes.io/instance-type", "pool",
}

// Add adds nodes to a simulation: copies of the first of the pool in the cluster, with its place in the topology. The
// pool is the name of a node, KEY=VALUE of a label, or the value of a label by which clouds name pools. Add returns the
// title of what is reported of it.
func (s *Simulation) Add(ctx context.Context, more *source.More) (title string, err error) {
	var list v1.NodeList
	if err := s.Read(ctx, "/api/v1/nodes", &list); err != nil {
		return "", err
	}
	at := slices.IndexFunc(list.Items, func(node v1.Node) bool { return inPool(&node, more.Pool) })
	if at < 0 {
		return "",
			fmt.Errorf("checking --nodes: no node is in pool %q: name a node, KEY=VALUE of a label, or the value of one of %s",
				more.Pool, strings.Join(poolLabels, ", "))
	}
	model := &list.Items[at]
	title = "with " + words.Count(more.Count, "more node") + " like " + model.Name
	if place := view.Place(model, view.Levels(apiobjects.Pointers(list.Items))); place != "" {
		title += " (in " + place + ")"
	}
	var made []Object
	for i := range more.Count {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(like(model, fmt.Sprintf("new-%s-%d", model.Name, i+1)))
		if err != nil {
			return "", fmt.Errorf("making a node: %w", err)
		}
		made = append(made, Object{Resource: Nodes, Object: o})
	}
	return title, s.Suppose(made)
}

func inPool(node *v1.Node, pool string) bool {
	if key, value, isLabel := strings.Cut(pool, "="); isLabel {
		has, ok := node.Labels[key]
		return ok && has == value
	}
	return node.Name == pool || slices.ContainsFunc(poolLabels, func(key string) bool { return node.Labels[key] == pool })
}

// transientTaints are on nodes that are being made or removed, and not on the nodes that would come.
var transientTaints = []string{"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
	"karpenter.sh/disrupted", "karpenter.sh/unregistered", "node.cloudprovider.kubernetes.io/uninitialized",
	"node.cloudprovider.kubernetes.io/shutdown"}

// like returns a new node that is ready, and like another in all else.
func like(node *v1.Node, name string) *v1.Node {
	made := node.DeepCopy()
	made.APIVersion, made.Kind = "v1", "Node"
	made.Name, made.UID, made.ManagedFields, made.OwnerReferences = name, types.UID(uuid.NewUUID()), nil, nil
	// Of those that plugins read, one is about the node itself.
	maps.DeleteFunc(made.Annotations, func(key, _ string) bool {
		return !strings.HasPrefix(key, v1alpha1.GroupName+"/") || key == v1alpha1.ReservationMarksAnnotation
	})
	if made.Labels[v1.LabelHostname] != "" {
		made.Labels[v1.LabelHostname] = name
	}
	made.Spec.Unschedulable, made.Spec.ProviderID = false, ""
	made.Spec.Taints = slices.DeleteFunc(made.Spec.Taints, func(taint v1.Taint) bool {
		return strings.HasPrefix(taint.Key, "node.kubernetes.io/") || slices.Contains(transientTaints, taint.Key)
	})
	made.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	made.Status.VolumesAttached, made.Status.VolumesInUse, made.Status.Images = nil, nil, nil
	return made
}
