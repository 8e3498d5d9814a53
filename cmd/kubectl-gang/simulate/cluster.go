package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/overlay"
	"github.com/lockstep-sh/lockstep/plugins/overview"
)

// fast is how objects of the kinds of Kubernetes itself are read: protobuf costs a fraction of JSON. A dump has JSON alone.
const fast = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

// read reads an object or a list from a cluster.
func read(ctx context.Context, base overlay.Base, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	object, typed := into.(runtime.Object)
	if typed {
		_, _, err := scheme.Scheme.ObjectKinds(object)
		typed = err == nil
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	if typed {
		request.Header.Set("Accept", fast)
	}
	response, err := base.Read(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fmt.Errorf("reading %s: %s", path, response.Status)
		switch response.StatusCode {
		case http.StatusNotFound:
			return &MissingError{err}
		case http.StatusForbidden, http.StatusUnauthorized:
			return &NotAllowedError{err}
		}
		return err
	}
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
	case typed:
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, object)
	default:
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// MissingError means that an object does not exist, or that its kind is not served.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns what the API server said.
func (e *MissingError) Unwrap() error { return e.Err }

// NotAllowedError means that a user may not read something.
type NotAllowedError struct{ Err error }

// Error implements error.
func (e *NotAllowedError) Error() string { return e.Err.Error() }

// Unwrap returns what the API server said.
func (e *NotAllowedError) Unwrap() error { return e.Err }

// Priorities returns a function that returns the priority and preemption policy of a class of the cluster.
func (s *Simulation) Priorities(ctx context.Context) (func(class string) (int32, *v1.PreemptionPolicy, error), error) {
	var list schedulingv1.PriorityClassList
	if err := s.Read(ctx, "/apis/scheduling.k8s.io/v1/priorityclasses", &list); err != nil {
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

// Exists reports whether an object is in the cluster, and not on its way out. Where the user may not read it, it returns a
// [NotAllowedError].
func (s *Simulation) Exists(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (bool, error) {
	var object metav1.PartialObjectMetadata
	err := s.Read(ctx, overlay.PathOf(resource, namespace, name), &object)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.DeletionTimestamp == nil, err
}

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

// Suppose adds the nodes to a simulation: copies of the first of the pool in the cluster, with its place in the topology. The pool
// is the name of a node, KEY=VALUE of a label, or the value of a label by which clouds name pools.
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
	nodes := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	if place := overview.Place(nodes[at], overview.Levels(nodes)); place != "" {
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
