package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefragmentationPlanResource is the resource name of DefragmentationPlan.
var DefragmentationPlanResource = SchemeGroupVersion.WithResource("defragmentationplans")

// DefragmentationMode is whether a plan is carried out without approval.
type DefragmentationMode string

const (
	// DefragmentationApproval: the plan is shown, and carried out once it is approved.
	DefragmentationApproval DefragmentationMode = "Approval"
	// DefragmentationDryRun is the former name of DefragmentationApproval.
	DefragmentationDryRun DefragmentationMode = "DryRun"
	// DefragmentationExecute: the plan is carried out.
	DefragmentationExecute DefragmentationMode = "Execute"
)

// DefragmentationPhase is how far a plan has come.
type DefragmentationPhase string

const (
	// DefragmentationPending: moves are sought.
	DefragmentationPending DefragmentationPhase = "Pending"
	// DefragmentationPlanned: moves are known; with mode Approval they wait for approval.
	DefragmentationPlanned DefragmentationPhase = "Planned"
	// DefragmentationRunning: pods are being moved.
	DefragmentationRunning DefragmentationPhase = "Running"
	// DefragmentationSucceeded: all moves are done, and what was freed has been used or held long enough. Final.
	DefragmentationSucceeded DefragmentationPhase = "Succeeded"
	// DefragmentationFailed: there is no plan, or it could not be carried out. It no longer holds anything. Final.
	DefragmentationFailed DefragmentationPhase = "Failed"
)

// Types and reasons of a plan's conditions.
const (
	// DefragmentationFound is the condition that moves that lead to the goal are known. Only the descheduler writes it.
	DefragmentationFound = "Found"
	// DefragmentationReasonFound goes with DefragmentationFound when it is true.
	DefragmentationReasonFound = "Found"
	// DefragmentationReasonNothing: the goal is reached without a move.
	DefragmentationReasonNothing = "NothingToDo"
	// DefragmentationReasonNone: no moves lead to the goal.
	DefragmentationReasonNone = "NoPlan"

	// DefragmentationComplete is the condition that the plan has come to its end. Only the controller writes it.
	DefragmentationComplete = "Complete"
	// DefragmentationReasonAwaitingApproval: spec.approved is awaited.
	DefragmentationReasonAwaitingApproval = "AwaitingApproval"
	// DefragmentationReasonReserving: targets that have room already are being reserved. No pod has been
	// evicted.
	DefragmentationReasonReserving = "Reserving"
	// DefragmentationReasonMoving: pods are being moved.
	DefragmentationReasonMoving = "Moving"
	// DefragmentationReasonHeld: all moves are done, and what was freed is held for the goal.
	DefragmentationReasonHeld = "Held"
	// DefragmentationReasonUsed: what was freed is used.
	DefragmentationReasonUsed = "Used"
	// DefragmentationReasonDone: all moves are done, and there was nothing to hold.
	DefragmentationReasonDone = "Done"
	// DefragmentationReasonUnused: what was freed was held long enough, and not used.
	DefragmentationReasonUnused = "Unused"
	// DefragmentationReasonOutdated: the cluster, or the goal, is not as it was when the plan was made.
	DefragmentationReasonOutdated = "Outdated"
	// DefragmentationReasonMoveFailed: a move failed.
	DefragmentationReasonMoveFailed = "MoveFailed"
	// DefragmentationReasonCancelled: it is being deleted.
	DefragmentationReasonCancelled = "Cancelled"
)

// DefragmentationPlan is pods to move so that what is free lies together: for a gang that waits, say.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=dfp
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",message="metadata.name: is longer than 52 characters, and what is made for the plan is named by it: choose a shorter one"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.status.goal`
// +kubebuilder:printcolumn:name="Moves",type=integer,JSONPath=`.status.moveCount`
// +kubebuilder:printcolumn:name="Moved",type=integer,JSONPath=`.status.movedCount`
// +kubebuilder:printcolumn:name="Before",type=integer,JSONPath=`.status.predicted.before`,description="Gangs of the shape that fit before."
// +kubebuilder:printcolumn:name="After",type=integer,JSONPath=`.status.predicted.after`,description="Gangs of the shape that fit after it, as predicted."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DefragmentationPlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DefragmentationPlanSpec `json:"spec"`
	// +optional
	Status DefragmentationPlanStatus `json:"status,omitempty"`
}

// DefragmentationPlanSpec is what the plan must achieve, and at what cost. Only approved can be changed.
//
// +kubebuilder:validation:XValidation:rule="self.goal == oldSelf.goal && self.mode == oldSelf.mode && has(self.budget) == has(oldSelf.budget) && (!has(self.budget) || self.budget == oldSelf.budget) && has(self.holdTime) == has(oldSelf.holdTime) && (!has(self.holdTime) || duration(self.holdTime) == duration(oldSelf.holdTime)) && self.schedulerName == oldSelf.schedulerName",message="spec: only approved can be changed: make another DefragmentationPlan with what you want"
// +kubebuilder:validation:XValidation:rule="!oldSelf.approved || self.approved",fieldPath=".approved",message="approved: cannot be taken back: delete the plan to end it"
type DefragmentationPlanSpec struct {
	// Mode is whether the plan is carried out without approval. Approval: it is shown, and waits for approved; DryRun is
	// the former name of that. Default: Approval.
	//
	// +optional
	// +kubebuilder:default=Approval
	// +kubebuilder:validation:Enum=Approval;Execute;DryRun
	Mode DefragmentationMode `json:"mode,omitempty"`
	// Goal is what the plan must achieve.
	Goal DefragmentationGoal `json:"goal"`
	// Budget is what the plan may cost.
	//
	// +optional
	// +kubebuilder:default={}
	Budget DefragmentationBudget `json:"budget,omitempty"`
	// Approved: a plan of mode Approval is carried out, just as it is shown.
	//
	// +optional
	// +kubebuilder:default=false
	Approved bool `json:"approved"`
	// HoldTime is how long what was freed is held for the gang once it lies together: from 1s to 24h. Default: 10m.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,12}([.][0-9]{1,9})?ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",messageExpression="'holdTime: \"' + self + '\" is no duration from 1s to 24h: write it like 90s or 10m'",message="holdTime: must be a duration from 1s to 24h: write it like 90s or 10m"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`
	// SchedulerName is the profile that is to place the shape. A gang is placed by its own profile. Default:
	// lockstep-scheduler.
	//
	// +optional
	// +kubebuilder:default=lockstep-scheduler
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
}

// DefragmentationGoal is what a plan must achieve: exactly one of these.
//
// +kubebuilder:validation:XValidation:rule="(has(self.podGroup) ? 1 : 0) + (has(self.pod) ? 1 : 0) + (has(self.shape) ? 1 : 0) + (has(self.empty) ? 1 : 0) == 1",message="goal: set exactly one of podGroup, pod, shape and empty"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || has(self.pod.uid)",fieldPath=".pod",message="pod: uid is not set: set that of the very pod that waits"
type DefragmentationGoal struct {
	// PodGroup is a gang that waits, in whichever way it is written: namespace/name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression="'podGroup: \"' + self + '\" is no gang: write namespace/name'",message="podGroup: must be a gang: write namespace/name"
	PodGroup string `json:"podGroup,omitempty"`
	// Pod is a pod that waits, and is in no gang.
	//
	// +optional
	Pod *ReservationOwnerObject `json:"pod,omitempty"`
	// Shape is a gang that may come: a number of further gangs like it are to fit.
	//
	// +optional
	Shape *GangShape `json:"shape,omitempty"`
	// Empty is nodes or domains to run empty. Nothing is held there afterwards.
	//
	// +optional
	Empty *EmptyUnits `json:"empty,omitempty"`
}

// GangShape is what a gang asks for.
//
// +kubebuilder:validation:XValidation:rule="self.members * (has(self.more) ? self.more : 1) <= 4096",fieldPath=".more",message="more: of so many members no more than 4096 in all can be planned for: lower more"
type GangShape struct {
	// Members is how many pods the gang has. From 1 to 1024.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Members int32 `json:"members"`
	// Requests is what each member asks for.
	//
	// +kubebuilder:validation:MinProperties=1
	Requests v1.ResourceList `json:"requests"`
	// Topology is the key of a node label: all members have to be inside one domain of it. Without, anywhere.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",messageExpression="'topology: \"' + self + '\" is no label key: write that of a node label'",message="topology: must be the key of a node label"
	Topology string `json:"topology,omitempty"`
	// More is how many more such gangs must fit than do now. From 1 to 64. Default: 1.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	More int32 `json:"more,omitempty"`
}

// EmptyUnits is nodes or domains to run empty.
type EmptyUnits struct {
	// Unit is the key of the node label whose domains are emptied. Default: kubernetes.io/hostname, a node.
	//
	// +optional
	// +kubebuilder:default="kubernetes.io/hostname"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",messageExpression="'unit: \"' + self + '\" is no label key: write that of a node label'",message="unit: must be the key of a node label"
	Unit string `json:"unit,omitempty"`
	// Resource is what the units are emptied of: pods that do not ask for it stay. Without, all pods go but those of
	// DaemonSets and of the kubelet.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=317
	Resource v1.ResourceName `json:"resource,omitempty"`
	// Names are the values of the label.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names"`
}

// DefragmentationBudget is what a plan may cost.
type DefragmentationBudget struct {
	// MaxMoves is how many pods may be moved. From 1 to 1024. Default: 32.
	//
	// +optional
	// +kubebuilder:default=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	MaxMoves int32 `json:"maxMoves,omitempty"`
	// MaxGangs is of how many gangs pods may be moved. From 0, which is none, to 1024. Default: 4.
	//
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	MaxGangs *int32 `json:"maxGangs,omitempty"`
	// MaxEvictions is how many pods may be between their eviction and their successor at a time. From 1 to 1024.
	// Default: 4.
	//
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	MaxEvictions int32 `json:"maxEvictions,omitempty"`
}

// DefragmentationPlanStatus is the plan, and how far it has come. What the descheduler has found no longer changes;
// once the phase is Succeeded or Failed, nothing does.
type DefragmentationPlanStatus struct {
	// Phase is how far the plan has come. Succeeded and Failed are final.
	//
	// +optional
	// +kubebuilder:validation:Enum=Pending;Planned;Running;Succeeded;Failed
	Phase DefragmentationPhase `json:"phase,omitempty"`
	// Goal is the goal in words.
	//
	// +optional
	Goal string `json:"goal,omitempty"`
	// Moves are the pods to move, in an order in which each has room when its turn comes.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Moves []PlannedMove `json:"moves,omitempty"`
	// MoveCount is how many moves there are.
	//
	// +optional
	MoveCount int32 `json:"moveCount,omitempty"`
	// MovedCount is how many of them are done.
	//
	// +optional
	// +kubebuilder:default=0
	MovedCount int32 `json:"movedCount"`
	// Places are where the gang that the plan is for is to go.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Places []PlannedPlace `json:"places,omitempty"`
	// Restarts is how many pods start anew by the plan: those that are moved, and all pods of gangs that
	// break by it.
	//
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// Predicted is how many gangs of the shape fit before the moves, and are to fit after them.
	//
	// +optional
	Predicted *GangCapacity `json:"predicted,omitempty"`
	// Achieved is how many gangs of the shape fitted before the moves, and fitted after them.
	//
	// +optional
	Achieved *GangCapacity `json:"achieved,omitempty"`
	// StartTime is when the plan began to be carried out.
	//
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// HeldTime is when all moves were done. What was freed is held from then on for spec.holdTime.
	//
	// +optional
	HeldTime *metav1.Time `json:"heldTime,omitempty"`
	// EndTime is when the phase became Succeeded or Failed.
	//
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Conditions are Found, written by the descheduler, and Complete, written by the controller.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlannedMove is one pod to move.
type PlannedMove struct {
	Namespace string    `json:"namespace"`
	PodName   string    `json:"podName"`
	PodUID    types.UID `json:"podUID"`
	// PodGroup is the name of the gang that the pod is in, if any.
	//
	// +optional
	PodGroup string `json:"podGroup,omitempty"`
	// SucceededGone is how many members of its gang had run to success and were gone when the plan was made, and count
	// towards the gang's minimum: the API server no longer has them.
	//
	// +optional
	SucceededGone int32  `json:"succeededGone,omitempty"`
	SourceNode    string `json:"sourceNode"`
	TargetNode    string `json:"targetNode"`
	// After are the moves that have to be done first, since they make the room for this one: their numbers, from 0.
	//
	// +optional
	// +listType=atomic
	After []int32 `json:"after,omitempty"`
	// Why is what the move is for.
	Why string `json:"why"`
	// Bare: the pod has no controller; it is made again under its name by other means.
	//
	// +optional
	Bare bool `json:"bare,omitempty"`
	// Phase is that of its PodMigration.
	//
	// +optional
	Phase MigrationPhase `json:"phase,omitempty"`
}

// PlannedPlace is where members of the gang are to go.
type PlannedPlace struct {
	// PodName is a member that waits, in the namespace of the gang; one that stands for all of its kind.
	PodName string `json:"podName"`
	// PodUID is the UID of the pod: another pod of its name is not the one that was planned for.
	//
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// NodeName is where they are to go.
	NodeName string `json:"nodeName"`
	// Members is how many members of that kind go there.
	Members int32 `json:"members"`
}

// GangCapacity is how many gangs of a shape fit.
type GangCapacity struct {
	Before int32 `json:"before"`
	After  int32 `json:"after"`
	// Domains are those in which the two numbers differ.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Domains []DomainCapacity `json:"domains,omitempty"`
}

// DomainCapacity is how many gangs of a shape fit in a domain.
type DomainCapacity struct {
	Name   string `json:"name"`
	Before int32  `json:"before"`
	After  int32  `json:"after"`
}

// DefragmentationPlanList is a list of plans.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type DefragmentationPlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DefragmentationPlan `json:"items"`
}
