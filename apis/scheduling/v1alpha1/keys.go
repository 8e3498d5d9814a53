package v1alpha1

import v1 "k8s.io/api/core/v1"

// Keys by which a pod joins a gang. The gang's key is namespace/name, where the
// namespace is the pod's.
const (
	// GangNameAnnotation names the gang of a pod (annotation on the pod).
	GangNameAnnotation = "gang.scheduling.koordinator.sh/name"
	// PodGroupLabel names the PodGroup object of a pod (label on the pod).
	PodGroupLabel = "pod-group.scheduling.sigs.k8s.io"
	// PodGroupXLabel is the label of the same meaning in the API group of the
	// PodGroup object (label on the pod).
	PodGroupXLabel = "scheduling.x-k8s.io/pod-group"
	// PodGroupNameLabel together with PodGroupMinAvailableLabel declares a gang
	// without a PodGroup object (label or annotation on the pod).
	PodGroupNameLabel = "pod-group.scheduling.sigs.k8s.io/name"
	// PodGroupMinAvailableLabel is the minimum that goes with PodGroupNameLabel.
	PodGroupMinAvailableLabel = "pod-group.scheduling.sigs.k8s.io/min-available"
	// GangAnnotation makes a gang of the pods that one object makes: GangOwner or GangOwnerPart.
	// It counts on pods with none of the keys above and no spec.schedulingGroup (annotation on the
	// pod; on a Namespace for its pods, where manifests/gangs-by-owner is installed).
	GangAnnotation = "scheduling.lockstep.dev/gang"
)

// Values of GangAnnotation.
const (
	// GangOwner: the pods of a Job, of a JobSet, or of a group of a LeaderWorkerSet are a gang.
	GangOwner = "Owner"
	// GangOwnerPart: as GangOwner, but each replicated job of a JobSet is a gang of its own.
	GangOwnerPart = "OwnerPart"
)

// Annotations on a pod or on its PodGroup that describe the gang. Where both
// carry one, the pod's wins, field by field.
const (
	// MinAvailableAnnotation is the number of members that must be held or bound
	// together: a positive integer. Required (PodGroup: spec.minMember).
	MinAvailableAnnotation = "gang.scheduling.koordinator.sh/min-available"
	// WaitingTimeAnnotation is the longest wait since the first member was held, after
	// which the gang is left alone until its user acts: a positive Go duration. The
	// PodGroup's spec.scheduleTimeoutSeconds ends one round only.
	WaitingTimeAnnotation = "gang.scheduling.koordinator.sh/waiting-time"
	// TotalNumberAnnotation is the number of members that a Strict round waits for to be tried:
	// an integer not below the minimum.
	TotalNumberAnnotation = "gang.scheduling.koordinator.sh/total-number"
	// ModeAnnotation is ModeStrict or ModeNonStrict.
	ModeAnnotation = "gang.scheduling.koordinator.sh/mode"
	// GroupsAnnotation is a JSON list of "namespace/name": the gangs that start
	// together with this one. Empty, "" and [] mean alone.
	GroupsAnnotation = "gang.scheduling.koordinator.sh/groups"
	// MatchPolicyAnnotation says which members count towards the minimum.
	MatchPolicyAnnotation = "gang.scheduling.koordinator.sh/match-policy"
	// TimeoutAnnotation is written by the scheduler on every member once the
	// waiting time ran out. Its value is "true". A member that carries it is not
	// scheduled until the key is removed.
	TimeoutAnnotation = "gang.scheduling.koordinator.sh/timeout"

	// RequiredTopologyAnnotation is a node label key: all members run inside one
	// domain of it, always.
	RequiredTopologyAnnotation = "scheduling.lockstep.dev/required-topology"
	// PreferredTopologyAnnotation is a node label key: all members run inside one
	// domain of it, or inside as few as possible.
	PreferredTopologyAnnotation = "scheduling.lockstep.dev/preferred-topology"
	// TopologyScopeAnnotation is TopologyScopeGroup where all gangs of a group have to be in one
	// domain of the required topology together. All of them have to say so.
	TopologyScopeAnnotation = "scheduling.lockstep.dev/topology-scope"
	// TopologySlicesAnnotation is a JSON list of at most 3 {"topology": KEY, "size": N},
	// coarsest first: every run of N members with consecutive ranks, counted from a multiple
	// of N, is inside one domain of KEY. Each size divides the one before.
	TopologySlicesAnnotation = "scheduling.lockstep.dev/topology-slices"
	// TopologySpreadAnnotation is TopologySpreadEven where members that no one domain takes
	// are spread evenly over those that they need, instead of filling one after the other.
	TopologySpreadAnnotation = "scheduling.lockstep.dev/topology-spread"
	// NetworkTopologySpecAnnotation is Koordinator's: a JSON object with a gatherStrategy, a
	// list of {"layer": NAME, "strategy": "MustGather" or "PreferGather"}. Layers are named in
	// the arguments of the Gang plugin.
	NetworkTopologySpecAnnotation = "gang.scheduling.koordinator.sh/network-topology-spec"
	// NetworkTopologyIndexAnnotation is Koordinator's rank of a member (annotation on the
	// pod).
	NetworkTopologyIndexAnnotation = "gang.scheduling.koordinator.sh/network-topology-index"
	// MinByRoleAnnotation is a JSON object from role to minimum.
	MinByRoleAnnotation = "scheduling.lockstep.dev/min-by-role"
	// PreemptionDelayAnnotation is how long a gang, or a pod in no gang, that does not fit evicts no
	// pods, from when it first did not fit, as a Go duration: an autoscaler may bring nodes meanwhile.
	PreemptionDelayAnnotation = "scheduling.lockstep.dev/preemption-delay"
	// EvictByAnnotation is how the scheduler evicts a gang as a whole: EvictByDelete or EvictBySuspend (also on
	// the Namespace, for the gangs there that do not say). The default is an argument of GangPreemption.
	EvictByAnnotation = "scheduling.lockstep.dev/evict-by"
	// StagesAnnotation lists the sizes of the parts of a gang that its workload makes one after the
	// other, separated by commas: 4,1 where the fifth member is made when four run or have
	// succeeded. Each part starts as a whole; the minimum is that of all parts.
	StagesAnnotation = "scheduling.lockstep.dev/stages"
)

const (
	// RoleLabel is the role of a member (label on the pod).
	RoleLabel = "scheduling.lockstep.dev/role"
	// QueueLabel names the queue (label on the pod or PodGroup, annotation on the
	// Namespace as its default).
	QueueLabel = "scheduling.lockstep.dev/queue"
)

// Keys of ProvisioningRequests that the scheduler makes for gangs. The gang is named by GangNameAnnotation.
const (
	// ProvisioningRequestLabel names the ProvisioningRequest that an object, or a pod in a template, belongs to (label
	// on ProvisioningRequests, on their PodTemplates and on the pods in these).
	ProvisioningRequestLabel = "scheduling.lockstep.dev/provisioning-request"
	// SchedulerNameAnnotation is the profile that made the request (annotation on
	// ProvisioningRequests).
	SchedulerNameAnnotation = "scheduling.lockstep.dev/scheduler-name"
)

// Keys of GPU cards that pods share by memory.
const (
	// GPUMemoryResource is the extended resource of GPU memory, in MiB. A pod gets all
	// that it requests on one card.
	GPUMemoryResource = "scheduling.lockstep.dev/gpu-memory"
	// GPUCardsAnnotation is a JSON list of the memory of each card of a node, in MiB
	// (annotation on the node). The sum is what the node has allocatable. Without it
	// the node has one card with all of that.
	GPUCardsAnnotation = "scheduling.lockstep.dev/gpu-cards"
	// GPUCardAnnotation is written by the scheduler before it binds a pod: the card of the node
	// that the pod is on, counted from 0 (annotation on the pod).
	GPUCardAnnotation = "scheduling.lockstep.dev/gpu-card"
	// GPUCardMemoryAnnotation is written with it: how much of the card is the pod's,
	// in MiB (annotation on the pod).
	GPUCardMemoryAnnotation = "scheduling.lockstep.dev/gpu-card-memory"
)

// Labels of pods, and an annotation, that hold the rank of a member. They are read, never
// written.
const (
	// TrainingReplicaIndexLabel and TrainingReplicaTypeLabel are those of Kubeflow's
	// operators.
	TrainingReplicaIndexLabel = "training.kubeflow.org/replica-index"
	TrainingReplicaTypeLabel  = "training.kubeflow.org/replica-type"
	// LeaderWorkerIndexLabel is LeaderWorkerSet's.
	LeaderWorkerIndexLabel = "leaderworkerset.sigs.k8s.io/worker-index"
)

// Labels by which pods that belong together are found. They are read, never written on pods;
// PodGroups that lockstep-controller makes carry them, too.
const (
	// JobSetNameLabel, JobSetUIDLabel and ReplicatedJobNameLabel are JobSet's.
	JobSetNameLabel        = "jobset.sigs.k8s.io/jobset-name"
	JobSetUIDLabel         = "jobset.sigs.k8s.io/jobset-uid"
	ReplicatedJobNameLabel = "jobset.sigs.k8s.io/replicatedjob-name"
	// LeaderWorkerSetNameLabel and LeaderWorkerGroupLabel are LeaderWorkerSet's: its name, and
	// the index of the group.
	LeaderWorkerSetNameLabel = "leaderworkerset.sigs.k8s.io/name"
	LeaderWorkerGroupLabel   = "leaderworkerset.sigs.k8s.io/group-index"
)

// TopologyScopeGroup is the value of TopologyScopeAnnotation.
const TopologyScopeGroup = "group"

// TopologySpreadEven is the value of TopologySpreadAnnotation.
const TopologySpreadEven = "Even"

// Values of EvictByAnnotation.
const (
	// EvictByDelete: the pods are deleted.
	EvictByDelete = "Delete"
	// EvictBySuspend: a Job is suspended, so that the Job controller deletes its pods and counts no failures, and
	// resumed once they have ended.
	EvictBySuspend = "Suspend"
)

// EvictedAnnotation is written on the PodGroup of a gang when it is evicted whole, and removed when it has its minimum
// again: a JSON object that says when, for whom, which Job made its pods, and what they had if its queue still
// asks for it. The event Evicted about what made its pods has the same. On a Job it is written when that is suspended
// to evict its pods, and removed when it is resumed (annotation on Jobs, PodGroups and events).
const EvictedAnnotation = "scheduling.lockstep.dev/evicted"

// Strategies of NetworkTopologySpecAnnotation.
const (
	MustGather   = "MustGather"
	PreferGather = "PreferGather"
)

// Values of ModeAnnotation.
const (
	ModeStrict    = "Strict"
	ModeNonStrict = "NonStrict"
)

// Values of MatchPolicyAnnotation.
const (
	// MatchOnceSatisfied lets later members of a gang that was once satisfied go
	// alone, until all its pods are gone.
	MatchOnceSatisfied = "once-satisfied"
	// MatchOnlyWaiting counts members that are held, not those that run.
	MatchOnlyWaiting = "only-waiting"
	// MatchWaitingAndRunning counts members that are held and those that run.
	MatchWaitingAndRunning = "waiting-and-running"
)

// Conditions on PodGroups, and the reasons they and the PodScheduled condition
// of members carry.
const (
	// ConditionScheduled is True once the minimum of a gang is bound.
	ConditionScheduled = "Scheduled"

	// ReasonMinimumBound: the minimum of the gang is bound.
	ReasonMinimumBound = "MinimumBound"
	// ReasonGangIncomplete: members are missing; nothing was tried.
	ReasonGangIncomplete = "GangIncomplete"
	// ReasonGangUnsupported: pods or their PodGroup ask for something that is not supported, or by a value that is none,
	// and must not be scheduled without it.
	ReasonGangUnsupported = "GangUnsupported"
	// ReasonGangUndefined: the gang has no usable minimum.
	ReasonGangUndefined = "GangUndefined"
	// ReasonAwaitingPlacement: the gang is complete, and it is not known yet where its members
	// could go.
	ReasonAwaitingPlacement = "AwaitingPlacement"
	// ReasonUnschedulable: the whole gang was tried and does not fit; it would if there were more
	// nodes. Autoscalers add nodes for pods with this reason, and for no others.
	ReasonUnschedulable = "Unschedulable"
	// ReasonPreemptionInProgress: room is being made for the gang, which waits for pods to end.
	ReasonPreemptionInProgress = "PreemptionInProgress"
	// ReasonAwaitingReservation: a pod names a Reservation and goes there or nowhere, or the placements of one that it
	// owns are being written.
	ReasonAwaitingReservation = "AwaitingReservation"
	// ReasonMemberRejected: a member fits on no node, whatever nodes there are, until something else
	// changes: a volume claim is missing, say.
	ReasonMemberRejected = "MemberRejected"
	// ReasonPlacementFailed: there was room for the gang, but members did not get the nodes that were
	// planned for them, or not in time; it is tried again.
	ReasonPlacementFailed = "PlacementFailed"
	// ReasonEvicted: the gang was evicted as a whole, and has no other pods yet.
	ReasonEvicted = "Evicted"
	// ReasonJobFailed: the gang was evicted as a whole, and its Job has failed since: it makes no more pods.
	ReasonJobFailed = "JobFailed"
	// ReasonTimedOut: the waiting time ran out; the user has to act.
	ReasonTimedOut = "TimedOut"
)

// IsIncomplete reports whether a reason says that a gang, or its group, cannot be tried yet, however much room there
// is.
func IsIncomplete(reason string) bool {
	switch reason {
	case ReasonGangIncomplete, ReasonGangUnsupported, ReasonGangUndefined:
		return true
	default:
		return false
	}
}

// AsksForNothing reports whether pods that wait for a reason ask their queue for nothing: their gang, or its group, is
// not tried before members come or their user acts.
func AsksForNothing(reason string) bool { return IsIncomplete(reason) || reason == ReasonTimedOut }

// PodEvicting is a condition of pods, written by the scheduler: True while it ends the pod to
// make room for another one, False where it did not end it after all. While it is True its
// reason is the name of the profile that ends the pod, and its message how many pods go with
// it, as JSON: for the process that finishes what another has begun.
const PodEvicting v1.PodConditionType = "scheduling.lockstep.dev/Evicting"
