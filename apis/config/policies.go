package config

import "slices"

// PolicyName names a policy of FairShare. (Names and questions: the kube-batch framework.)
type PolicyName string

// Policies.
const (
	// PolicyPriority: jobs of higher priority come first, and may preempt those of lower
	// priority.
	PolicyPriority PolicyName = "priority"
	// PolicyGang: gangs that do not run yet come before members beyond a minimum; and gangs
	// lose what they can do without, or go as a whole.
	PolicyGang PolicyName = "gang"
	// PolicyConformance: pods that the system needs stay.
	PolicyConformance PolicyName = "conformance"
	// PolicyDRF: the job that has least comes first (dominant resource fairness), and may
	// preempt jobs that have more, as long as these then still have no less than it.
	PolicyDRF PolicyName = "drf"
	// PolicyProportion: queues have what they are due by weight.
	PolicyProportion PolicyName = "proportion"
	// PolicyCapacity: queues have what their owners state that they deserve.
	PolicyCapacity PolicyName = "capacity"
)

// PolicyQuestion is a question that policies answer.
type PolicyQuestion string

// Questions.
const (
	// QueueOrder: which of two queues is served first.
	QueueOrder PolicyQuestion = "QueueOrder"
	// JobOrder: which of two jobs of a queue: gangs, or pods in no gang.
	JobOrder PolicyQuestion = "JobOrder"
	// TaskOrder: which of two pods, where their jobs are equal.
	TaskOrder PolicyQuestion = "TaskOrder"
	// Overused: whether a queue has its share, and waits.
	Overused PolicyQuestion = "Overused"
	// Preemptable: which pods may be evicted for which inside a queue.
	Preemptable PolicyQuestion = "Preemptable"
	// Reclaimable: which pods may be evicted so that another queue gets what it deserves.
	Reclaimable PolicyQuestion = "Reclaimable"
)

// PolicyTier is policies that answer together. In orders the first policy that ranks two
// differently decides, tier by tier. A pod may be evicted if all policies of the tier that
// answer permit it; the next tier is asked only where this one finds no pod.
type PolicyTier struct {
	Policies []Policy
}

// Policy is a policy in a tier.
type Policy struct {
	Name PolicyName
	// Answers are the questions that it answers here; none for all that it can.
	Answers []PolicyQuestion
}

// answers are the questions that each policy can answer.
var answers = map[PolicyName][]PolicyQuestion{
	PolicyPriority:    {QueueOrder, JobOrder, TaskOrder, Preemptable},
	PolicyGang:        {JobOrder, Preemptable, Reclaimable},
	PolicyConformance: {Preemptable, Reclaimable},
	PolicyDRF:         {JobOrder, Preemptable},
	PolicyProportion:  {QueueOrder, Overused, Reclaimable},
	PolicyCapacity:    {QueueOrder, Overused, Reclaimable},
}

// PolicyNames returns the names of all policies, in alphabetical order.
func PolicyNames() []PolicyName {
	return []PolicyName{PolicyCapacity, PolicyConformance, PolicyDRF, PolicyGang, PolicyPriority, PolicyProportion}
}

// CanAnswer returns the questions that a policy can answer; none for an unknown one.
func CanAnswer(name PolicyName) []PolicyQuestion { return slices.Clone(answers[name]) }

// asked reports whether a policy answers a question in its tier.
func (p Policy) asked(question PolicyQuestion) bool {
	list := p.Answers
	if len(list) == 0 {
		list = answers[p.Name]
	}
	return slices.Contains(list, question)
}

// Asked returns the policies that answer a question, for each tier that has any.
func Asked(tiers []PolicyTier, question PolicyQuestion) [][]PolicyName {
	var list [][]PolicyName
	for _, tier := range tiers {
		var names []PolicyName
		for _, policy := range tier.Policies {
			if policy.asked(question) {
				names = append(names, policy.Name)
			}
		}
		if len(names) > 0 {
			list = append(list, names)
		}
	}
	return list
}

// HasPolicy reports whether a policy is in any tier.
func HasPolicy(tiers []PolicyTier, name PolicyName) bool {
	return slices.ContainsFunc(tiers, func(tier PolicyTier) bool {
		return slices.ContainsFunc(tier.Policies, func(p Policy) bool { return p.Name == name })
	})
}
