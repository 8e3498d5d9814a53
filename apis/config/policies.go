package config

import "slices"

// PolicyName names a policy of FairShare. (Names and questions: the kube-batch framework.)
type PolicyName string

// Policies.
const (
	// PolicyPriority: who is more important comes first, and may preempt who is less.
	PolicyPriority PolicyName = "priority"
	// PolicyGang: gangs that do not run yet come before members beyond a minimum; and gangs
	// lose what they can do without, or go as a whole.
	PolicyGang PolicyName = "gang"
	// PolicyConformance: pods that the system needs stay.
	PolicyConformance PolicyName = "conformance"
	// PolicyDRF: who has least comes first (dominant resource fairness), and may preempt who
	// has more, as long as that is so afterwards.
	PolicyDRF PolicyName = "drf"
	// PolicyProportion: queues have what comes to their weight.
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
	// JobOrder: which of two gangs, or pods in none, of a queue.
	JobOrder PolicyQuestion = "JobOrder"
	// TaskOrder: which of two pods, where their jobs are equal.
	TaskOrder PolicyQuestion = "TaskOrder"
	// Overused: whether a queue has its share, and waits.
	Overused PolicyQuestion = "Overused"
	// Preemptable: who may be evicted for whom inside a queue.
	Preemptable PolicyQuestion = "Preemptable"
	// Reclaimable: who may be evicted so that another queue gets what it deserves.
	Reclaimable PolicyQuestion = "Reclaimable"
)

// PolicyTier is policies that answer together. Of orders the first policy that tells two
// apart decides, tier by tier. Whoever may be evicted all policies of the tier that answer
// have to permit; the next tier is asked only where this one finds nobody.
type PolicyTier struct {
	Policies []Policy
}

// Policy is a policy in a tier.
type Policy struct {
	Name PolicyName
	// Answers are the questions that it answers here; none for all that it can.
	Answers []PolicyQuestion
}

// answers is what each policy can answer.
var answers = map[PolicyName][]PolicyQuestion{
	PolicyPriority:    {QueueOrder, JobOrder, TaskOrder, Preemptable},
	PolicyGang:        {JobOrder, Preemptable, Reclaimable},
	PolicyConformance: {Preemptable, Reclaimable},
	PolicyDRF:         {JobOrder, Preemptable},
	PolicyProportion:  {QueueOrder, Overused, Reclaimable},
	PolicyCapacity:    {QueueOrder, Overused, Reclaimable},
}

// PolicyNames lists the policies that there are, in alphabetical order.
func PolicyNames() []PolicyName {
	return []PolicyName{PolicyCapacity, PolicyConformance, PolicyDRF, PolicyGang, PolicyPriority, PolicyProportion}
}

// CanAnswer lists the questions that a policy can answer; none for an unknown one.
func CanAnswer(name PolicyName) []PolicyQuestion { return slices.Clone(answers[name]) }

// asked reports whether a policy answers a question in its tier.
func (p Policy) asked(question PolicyQuestion) bool {
	list := p.Answers
	if len(list) == 0 {
		list = answers[p.Name]
	}
	return slices.Contains(list, question)
}

// Asked lists, for each tier in which any does, the policies that answer a question.
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
