package localcluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelRack is the label of local clusters that names the rack of a fake node.
	LabelRack = "topology.lockstep.dev/rack"

	// ResourceGPU is the resource that fake nodes call a GPU.
	ResourceGPU v1.ResourceName = "nvidia.com/gpu"

	// DeleteDelayAnnotation on a pod is how long it takes to end once it is deleted: "1s".
	DeleteDelayAnnotation = "pod-delete.stage.kwok.x-k8s.io/delay"

	// kwokNodeKey marks a node as fake, for KWOK.
	kwokNodeKey, kwokNodeValue = "kwok.x-k8s.io/node", "fake"

	// nodeWriters is how many nodes are created at a time.
	nodeWriters = 16
)

// defaultAllocatable fills in what a pool does not set.
var defaultAllocatable = v1.ResourceList{
	v1.ResourceCPU:    resource.MustParse("32"),
	v1.ResourceMemory: resource.MustParse("256Gi"),
	v1.ResourcePods:   resource.MustParse("110"),
}

// NodePool is a number of like nodes.
type NodePool struct {
	// Count is how many nodes.
	Count int

	// NamePrefix is followed by the number of the node in the pool, from 0. Default: "node-".
	NamePrefix string

	// Labels are on every node of the pool; LabelsFor, if set, adds those of node number i.
	// Every node has kubernetes.io/hostname, kubernetes.io/os, kubernetes.io/arch and, if it is fake, type=kwok.
	Labels    map[string]string
	LabelsFor func(i int) map[string]string

	// Annotations are on every node of the pool.
	Annotations map[string]string

	// Allocatable of each node, also its capacity. Default: 32 CPUs, 256 GiB, 110 pods, each
	// unless given.
	Allocatable v1.ResourceList

	// Taints of each node.
	Taints []v1.Taint
}

// Topology spreads count nodes over zones and racks, for NodePool.LabelsFor: neighbours by number
// share a rack, and neighbouring racks share a zone. 0 leaves that label out.
func Topology(count, zones, racks int) func(i int) map[string]string {
	return func(i int) map[string]string {
		labels := map[string]string{}
		if zones > 0 {
			labels[v1.LabelTopologyZone] = "z" + strconv.Itoa(i*zones/count)
		}
		if racks > 0 {
			labels[LabelRack] = "r" + strconv.Itoa(i*racks/count)
		}
		return labels
	}
}

// AddNodes creates the nodes of the pools, as Options.Kubelets says. They are Ready when it returns.
func (c *Cluster) AddNodes(ctx context.Context, pools ...NodePool) error {
	if c.kubelets {
		return c.startKubelets(ctx, pools)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(nodeWriters)
	for _, pool := range pools {
		for i := range pool.Count {
			if ctx.Err() != nil {
				break
			}
			group.Go(func() error {
				node := faked(pool.node(i))
				if _, err := c.clientset.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("creating node %s: %w", node.Name, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// node returns node number i.
func (p NodePool) node(i int) *v1.Node {
	prefix := p.NamePrefix
	if prefix == "" {
		prefix = "node-"
	}
	name := prefix + strconv.Itoa(i)
	labels := map[string]string{
		v1.LabelHostname: name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, p.Labels)
	if p.LabelsFor != nil {
		maps.Copy(labels, p.LabelsFor(i))
	}
	allocatable := defaultAllocatable.DeepCopy()
	maps.Copy(allocatable, p.Allocatable)
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: maps.Clone(p.Annotations)},
		Spec:       v1.NodeSpec{Taints: p.Taints},
		Status:     v1.NodeStatus{Allocatable: allocatable},
	}
}

// faked makes a node one that KWOK runs. A new node may bring its status along, as kubelets do, so that one
// call makes it and there is no status to wait for.
func faked(node *v1.Node) *v1.Node {
	metav1.SetMetaDataLabel(&node.ObjectMeta, "type", "kwok")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, kwokNodeKey, kwokNodeValue)
	node.Status = v1.NodeStatus{
		Phase:       v1.NodeRunning, // deprecated, but KWOK's sign that the node is initialized
		Allocatable: node.Status.Allocatable,
		Capacity:    node.Status.Allocatable,
		Conditions:  nodeConditions(),
		Addresses:   []v1.NodeAddress{{Type: v1.NodeHostName, Address: node.Name}},
		NodeInfo:    v1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "kwok"},
	}
	return node
}

func nodeConditions() []v1.NodeCondition {
	now := metav1.Now()
	condition := func(t v1.NodeConditionType, s v1.ConditionStatus, reason string) v1.NodeCondition {
		return v1.NodeCondition{Type: t, Status: s, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []v1.NodeCondition{
		condition(v1.NodeReady, v1.ConditionTrue, "KubeletReady"),
		condition(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID"),
	}
}
