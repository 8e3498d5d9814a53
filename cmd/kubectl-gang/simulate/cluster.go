package simulate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/overlay"
)

// Read reads an object or a list from a cluster.
func Read(base overlay.Base, path string, into any) error {
	request, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	response, err := base.Read(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading %s: %s", path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// Priorities returns what tells the priority of a class of a cluster.
func Priorities(base overlay.Base) (func(class string) (int32, *v1.PreemptionPolicy, error), error) {
	var list schedulingv1.PriorityClassList
	if err := Read(base, "/apis/scheduling.k8s.io/v1/priorityclasses", &list); err != nil {
		return nil, err
	}
	return func(class string) (int32, *v1.PreemptionPolicy, error) {
		for i := range list.Items {
			if c := &list.Items[i]; c.Name == class || class == "" && c.GlobalDefault {
				return c.Value, c.PreemptionPolicy, nil
			}
		}
		if class != "" {
			return 0, nil, fmt.Errorf("spec.priorityClassName is %q: the cluster has no such PriorityClass", class)
		}
		return 0, nil, nil
	}, nil
}

// poolLabels are the labels by which clouds and autoscalers name the pools of nodes.
var poolLabels = []string{
	"karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool", "agentpool",
	"node.kubernetes.io/instance-type", "pool",
}

// NewNodes are so many nodes like those of a pool: the name of a node, KEY=VALUE of a label, or the value of a label by which
// clouds name pools.
func NewNodes(base overlay.Base, pool string, count int) ([]Object, error) {
	var list v1.NodeList
	if err := Read(base, "/api/v1/nodes", &list); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Items, func(node v1.Node) bool { return inPool(&node, pool) })
	if at < 0 {
		return nil, fmt.Errorf("no node is in pool %q: name a node, KEY=VALUE of a label, or the value of one of %s", pool, strings.Join(poolLabels, ", "))
	}
	var made []Object
	for i := range count {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(like(&list.Items[at], fmt.Sprintf("new-%s-%d", list.Items[at].Name, i+1)))
		if err != nil {
			return nil, fmt.Errorf("making a node: %w", err)
		}
		made = append(made, Object{Resource: Nodes, Object: o})
	}
	return made, nil
}

func inPool(node *v1.Node, pool string) bool {
	if key, value, isLabel := strings.Cut(pool, "="); isLabel {
		return node.Labels[key] == value
	}
	return node.Name == pool || slices.ContainsFunc(poolLabels, func(key string) bool { return node.Labels[key] == pool })
}

// like is a new node that is ready, and like another in all else.
func like(node *v1.Node, name string) *v1.Node {
	made := node.DeepCopy()
	made.APIVersion, made.Kind = "v1", "Node"
	made.Name, made.UID, made.ManagedFields, made.OwnerReferences, made.Annotations = name, types.UID(uuid.NewUUID()), nil, nil, nil
	if made.Labels[v1.LabelHostname] != "" {
		made.Labels[v1.LabelHostname] = name
	}
	made.Spec.Unschedulable, made.Spec.ProviderID = false, ""
	made.Spec.Taints = slices.DeleteFunc(made.Spec.Taints, func(taint v1.Taint) bool { return strings.HasPrefix(taint.Key, "node.kubernetes.io/") })
	made.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	made.Status.VolumesAttached, made.Status.VolumesInUse, made.Status.Images = nil, nil, nil
	return made
}
