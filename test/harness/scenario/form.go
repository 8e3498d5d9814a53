package scenario

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scenario is one file. Names of gangs and pods are "namespace/name", or "name" for namespace default.
// Where a list of pods is asked for, each entry is such a name with * and ? in it.
type Scenario struct {
	// Name is the name of the file, without its ending.
	Name string `json:"-"`
	// Description is prose about what has to hold, and where that is documented.
	Description string `json:"description"`

	Cluster   Cluster   `json:"cluster,omitzero"`
	Scheduler Scheduler `json:"scheduler,omitzero"`
	// Controller also starts the controller.
	Controller bool `json:"controller,omitempty"`
	// ControllerArgs are further flags of the controller.
	ControllerArgs []string `json:"controllerArgs,omitempty"`

	// Programs are what steps start and kill beside them.
	Programs []Program `json:"programs,omitempty"`

	Nodes           []Nodes         `json:"nodes,omitempty"`
	Namespaces      []Namespace     `json:"namespaces,omitempty"`
	PriorityClasses []PriorityClass `json:"priorityClasses,omitempty"`
	// Gangs, Pods and Objects are what the steps create, by name.
	Gangs   []Gang           `json:"gangs,omitempty"`
	Pods    []Pods           `json:"pods,omitempty"`
	Objects []map[string]any `json:"objects,omitempty"`

	Steps []Step `json:"steps"`
}

// Cluster is what is special about the control plane.
type Cluster struct {
	// WithoutCRDs leaves manifests/crds out; the step apply may bring it later.
	WithoutCRDs bool `json:"withoutCRDs,omitempty"`
	// NativePodGroups switches the gate GenericWorkload on and serves scheduling.k8s.io/v1beta1.
	NativePodGroups bool `json:"nativePodGroups,omitempty"`
	// FeatureGates are further gates of the API server and the controllers: "WorkloadWithJob=true,...".
	FeatureGates string `json:"featureGates,omitempty"`
	// RuntimeConfig is which further APIs the API server serves, or does not:
	// "resource.k8s.io/v1/devicetaintrules=false,...".
	RuntimeConfig string `json:"runtimeConfig,omitempty"`
}

// Scheduler is how the scheduler runs.
type Scheduler struct {
	// Stock runs the stock kube-scheduler instead, under the name lockstep-scheduler: a control run.
	Stock bool `json:"stock,omitempty"`
	// Config is a KubeSchedulerConfiguration, ConfigFile one in a file of the repository; either has a
	// profile lockstep-scheduler. Default: the one in the binary.
	Config     map[string]any `json:"config,omitempty"`
	ConfigFile string         `json:"configFile,omitempty"`
	// Args are further flags.
	Args []string `json:"args,omitempty"`
	// Stopped: it does not run until a step starts it.
	Stopped bool `json:"stopped,omitempty"`
	// Standby: a second replica stands by. They elect a leader, with a lease of 8s; the first leads.
	Standby bool `json:"standby,omitempty"`
}

// Nodes is a pool of like nodes, named <name>-0, <name>-1 and so on.
type Nodes struct {
	Name string `json:"name"`
	// Count is how many nodes. Default: 1.
	Count  int               `json:"count,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Each has further labels by the number of the node.
	Each []map[string]string `json:"each,omitempty"`
	// Racks and Zones spread the pool over so many values of topology.lockstep.dev/rack (r0, r1 ...)
	// and topology.kubernetes.io/zone (z0, z1 ...); neighbours by number share one.
	Racks       int               `json:"racks,omitempty"`
	Zones       int               `json:"zones,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Allocatable: the default is 32 CPUs, 256Gi and 110 pods, each unless given.
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	Taints      []v1.Taint      `json:"taints,omitempty"`
	Cordoned    bool            `json:"cordoned,omitempty"`
	// Later: not there at first; a step creates the pool.
	Later bool `json:"later,omitempty"`
}

// Namespace is created before the first step. Those of pods and objects need no entry.
type Namespace struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PriorityClass is created before the first step.
type PriorityClass struct {
	Name             string               `json:"name"`
	Value            int32                `json:"value"`
	PreemptionPolicy *v1.PreemptionPolicy `json:"preemptionPolicy,omitempty"`
}

// Ways in which the pods of a gang join it.
const (
	JoinAnnotation = "annotation" // gang.scheduling.koordinator.sh/name and what goes with it, on the pods
	JoinLabel      = "label"      // pod-group.scheduling.sigs.k8s.io, and a PodGroup
	JoinXLabel     = "xLabel"     // scheduling.x-k8s.io/pod-group, and a PodGroup
	JoinLabelForm  = "labelForm"  // pod-group.scheduling.sigs.k8s.io/name and /min-available, on the pods
	JoinOwner      = "owner"      // scheduling.lockstep.dev/gang: the owner of the pods makes them, not the scenario
	JoinNative     = "native"     // spec.schedulingGroup, and a PodGroup of scheduling.k8s.io
)

// Gang is pods named <name>-0, <name>-1 and so on, and what makes them a gang. Its fields go to where
// its way of joining keeps them: the PodGroup if it has one, else annotations (or labels) of the pods.
type Gang struct {
	Name string `json:"name"`
	// Join is one of the Join constants. Default: annotation.
	Join string `json:"join,omitempty"`
	// Min is the minimum, also for the check that the gang is bound whole or not at all.
	Min int `json:"min"`
	// Members is how many pods. Default: min. 0: something else makes them, such as a Job.
	Members *int `json:"members,omitempty"`
	// Shapes are members that differ, instead of members and pod.
	Shapes []Shape `json:"shapes,omitempty"`
	Pod    Pod     `json:"pod,omitzero"`

	Total             int            `json:"total,omitempty"`
	Mode              string         `json:"mode,omitempty"`
	WaitTime          string         `json:"waitTime,omitempty"`
	Groups            []string       `json:"groups,omitempty"`
	MatchPolicy       string         `json:"matchPolicy,omitempty"`
	RequiredTopology  string         `json:"requiredTopology,omitempty"`
	PreferredTopology string         `json:"preferredTopology,omitempty"`
	MinByRole         map[string]int `json:"minByRole,omitempty"`
	// Annotations are further ones at the same place; they win over those that the fields make.
	Annotations map[string]string `json:"annotations,omitempty"`
	// PodGroup is merged into the PodGroup object (JSON merge patch).
	PodGroup map[string]any `json:"podGroup,omitempty"`

	// Burst is how long the gang may be seen with some but not all of its minimum bound, since pods
	// are bound one by one. Time in which the scheduler or the API server is down does not count.
	// Default: 2s.
	Burst metav1.Duration `json:"burst,omitzero"`
	// Partial: this gang is not held to "whole or not at all".
	Partial bool `json:"partial,omitempty"`
}

// Shape is a number of like members of a gang, under one role.
type Shape struct {
	Members int    `json:"members"`
	Role    string `json:"role,omitempty"`
	Pod     Pod    `json:"pod,omitzero"`
}

// Pod is what scheduling sees of a pod. It has one container and no grace period of its own.
type Pod struct {
	Requests v1.ResourceList `json:"requests,omitempty"`
	// Priority is the name of a PriorityClass.
	Priority string `json:"priority,omitempty"`
	// Scheduler is its scheduler's name. Default: lockstep-scheduler.
	Scheduler    string            `json:"scheduler,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Node: it is created on this node, and the step waits until it runs.
	Node string `json:"node,omitempty"`
	// Spec is merged into the pod's spec (JSON merge patch).
	Spec map[string]any `json:"spec,omitempty"`
}

// Pods is one pod, or with a count several, named <name>-0, <name>-1 and so on.
type Pods struct {
	Name  string `json:"name"`
	Count int    `json:"count,omitempty"`
	Pod
}
