package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// poolLabels are the labels by which clouds and autoscalers name the pools of nodes.
var poolLabels = []string{
	"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool", "agentpool",
	"node.kubernetes.io/instance-type", "pool",
}

// More is nodes that are supposed to be added.
type More struct {
	count int
	pool  string
	// like is the node that they are copies of, and where it is, once they were added.
	like string
}

// readMore reads +COUNT:POOL; nil for an empty text.
func readMore(text string) (*More, error) {
	if text == "" {
		return nil, nil
	}
	number, pool, ok := strings.Cut(strings.TrimPrefix(text, "+"), ":")
	count, err := strconv.Atoi(number)
	if err != nil || !ok || count < 1 || count > maxMore || pool == "" {
		return nil, fmt.Errorf("checking --nodes: %q is not +COUNT:POOL, such as +4:a100, with a count from 1 to %d", text, maxMore)
	}
	return &More{count: count, pool: pool}, nil
}

// maxMore is the most nodes that may be added.
const maxMore = 10000

// String returns the title of what is reported of it.
func (m *More) String() string {
	return fmt.Sprintf("with %d more nodes like %s", m.count, cmp.Or(m.like, "those of "+m.pool))
}

// Suppose adds the nodes to a simulation: copies of the first of the pool in the cluster, with its place in the
// topology. The pool is the name of a node, KEY=VALUE of a label, or the value of a label by which clouds name pools.
func (m *More) Suppose(ctx context.Context, s *Simulation) error {
	var list v1.NodeList
	if err := s.Read(ctx, "/api/v1/nodes", &list); err != nil {
		return err
	}
	at := slices.IndexFunc(list.Items, func(node v1.Node) bool { return inPool(&node, m.pool) })
	if at < 0 {
		return fmt.Errorf("checking --nodes: no node is in pool %q: name a node, KEY=VALUE of a label, or the value of one of %s", m.pool, strings.Join(poolLabels, ", "))
	}
	m.like = list.Items[at].Name
	if place := view.Place(&list.Items[at], view.Levels(access.Pointers(list.Items))); place != "" {
		m.like += " (in " + place + ")"
	}
	var made []Object
	for i := range m.count {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(like(&list.Items[at], fmt.Sprintf("new-%s-%d", list.Items[at].Name, i+1)))
		if err != nil {
			return fmt.Errorf("making a node: %w", err)
		}
		made = append(made, Object{Resource: Nodes, Object: o})
	}
	return s.Suppose(made)
}

func inPool(node *v1.Node, pool string) bool {
	if key, value, isLabel := strings.Cut(pool, "="); isLabel {
		has, ok := node.Labels[key]
		return ok && has == value
	}
	return node.Name == pool || slices.ContainsFunc(poolLabels, func(key string) bool { return node.Labels[key] == pool })
}

// like returns a new node that is ready, and like another in all else.
func like(node *v1.Node, name string) *v1.Node {
	made := node.DeepCopy()
	made.APIVersion, made.Kind = "v1", "Node"
	made.Name, made.UID, made.ManagedFields, made.OwnerReferences = name, types.UID(uuid.NewUUID()), nil, nil
	maps.DeleteFunc(made.Annotations, func(key, _ string) bool { // of those that plugins read, one is about the node itself
		return !strings.HasPrefix(key, v1alpha1.GroupName+"/") || key == v1alpha1.ReservationMarksAnnotation
	})
	if made.Labels[v1.LabelHostname] != "" {
		made.Labels[v1.LabelHostname] = name
	}
	made.Spec.Unschedulable, made.Spec.ProviderID = false, ""
	made.Spec.Taints = slices.DeleteFunc(made.Spec.Taints, func(taint v1.Taint) bool { return strings.HasPrefix(taint.Key, "node.kubernetes.io/") })
	made.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	made.Status.VolumesAttached, made.Status.VolumesInUse, made.Status.Images = nil, nil, nil
	return made
}
