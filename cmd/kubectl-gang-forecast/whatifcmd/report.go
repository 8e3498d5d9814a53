package whatifcmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/simulate"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// Report is what would be in one case.
type Report struct {
	// Case is which case it is: now, or with more nodes.
	Case string `json:"case"`
	// Placed of Pods would have a node.
	Placed int `json:"placed"`
	Pods   int `json:"pods"`
	// Undecided: the scheduler had not come to an end in the time that it had.
	Undecided bool `json:"undecided,omitempty"`
	// Why is why pods would wait, each reason once.
	Why     []view.Wait `json:"why,omitempty"`
	Members []Member    `json:"members"`
	Victims []Victim    `json:"victims,omitempty"`
	// Violating is how many of the Victims no PodDisruptionBudget lets go.
	Violating int `json:"violating,omitempty"`
	// Others are the pods that would be evicted meanwhile for others which wait in the cluster.
	Others []Victim `json:"evictedForOthers,omitempty"`
	// Seconds is how long the answer took, from when the cluster was asked first.
	Seconds float64 `json:"seconds"`
}

// Member is what would become of a pod.
type Member struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Gang      string `json:"gang,omitempty"`
	Node      string `json:"node,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Victim is a pod that would be evicted.
type Victim struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Gang      string `json:"gang,omitempty"`
	Node      string `json:"node"`
	Priority  int32  `json:"priority"`
	// Left is how many pods of its gang keep their nodes.
	Left int `json:"left"`
}

func (o *options) reportOf(name string, answer *simulate.Answer, simulation *simulate.Simulation,
	took time.Duration) Report {
	r := Report{Case: name, Placed: answer.Placed(), Pods: len(answer.Verdicts),
		Undecided: answer.Undecided, Seconds: took.Seconds()}
	for i := range answer.Verdicts {
		v := &answer.Verdicts[i]
		r.Members = append(r.Members, Member{v.Pod.Namespace, v.Pod.Name, simulation.GangOf(v.Pod), v.Node, v.Reason})
		if v.Node != "" {
			continue
		}
		r.Members[i].Reason = cmp.Or(v.Reason, "Undecided")
		message := v.Message // without --preempt the pods are tried with preemptionPolicy Never, which they do not have
		if o.preempt {
			message = v.Words()
		}
		r.Why = view.AddWait(r.Why, v.Reason, message)
	}
	left := simulation.Left(slices.Concat(answer.Victims, answer.Others))
	victims := func(pods []*v1.Pod) (list []Victim) {
		for _, pod := range pods {
			gang := simulation.GangOf(pod)
			list = append(list, Victim{pod.Namespace, pod.Name, gang, pod.Spec.NodeName, corev1helpers.PodPriority(pod),
				left[gang]})
		}
		return list
	}
	r.Victims, r.Others = victims(answer.Victims), victims(answer.Others)
	if len(r.Victims) > 0 {
		var asked []*v1.Pod
		for i := range answer.Verdicts {
			asked = append(asked, answer.Verdicts[i].Pod)
		}
		r.Violating = simulation.Violating(asked, answer.Asked)
	}
	return r
}

var (
	memberColumns = output.Columns[Member]{
		{Name: "NAMESPACE", Of: func(m Member) any { return m.Namespace }},
		{Name: "POD", Of: func(m Member) any { return m.Pod }},
		{Name: "GANG", Of: func(m Member) any { return output.OrNone(m.Gang) }},
		{Name: "NODE", Of: func(m Member) any { return output.OrNone(m.Node) }},
		{Name: "REASON", Of: func(m Member) any { return m.Reason }},
	}
	victimColumns = output.Columns[Victim]{
		{Name: "NAMESPACE", Of: func(v Victim) any { return v.Namespace }},
		{Name: "VICTIM", Of: func(v Victim) any { return v.Pod }},
		{Name: "GANG", Of: func(v Victim) any { return output.OrNone(v.Gang) }},
		{Name: "NODE", Of: func(v Victim) any { return v.Node }},
		{Name: "PRIORITY", Of: func(v Victim) any { return v.Priority }},
	}
)

// print prints reports: as words and tables, or as data.
func print(p *output.Printer, out io.Writer, reports []Report, preempt bool) error {
	if !p.IsTable() {
		return output.Print(p, "WhatIf", nil, reports)
	}
	for i := range reports {
		r := &reports[i]
		if i > 0 {
			fmt.Fprintln(out)
		}
		for line := range strings.Lines(r.words(preempt)) {
			if err := output.Wrap(out, line); err != nil {
				return err
			}
		}
		if err := output.Table(p, memberColumns, r.Members); err != nil {
			return err
		}
		if len(r.Victims) == 0 {
			continue
		}
		fmt.Fprintln(out)
		if err := output.Wrap(out, r.evicts()); err != nil {
			return err
		}
		if err := output.Table(p, victimColumns, r.Victims); err != nil {
			return err
		}
	}
	return nil
}

// evicts says what gangs lose by the evictions.
func (r *Report) evicts() string {
	var losses []string
	single := 0
	for _, v := range r.Victims {
		loss := fmt.Sprintf("gang %s goes whole", v.Gang)
		switch {
		case v.Gang == "":
			single++
			continue
		case v.Left > 0:
			loss = fmt.Sprintf("gang %s shrinks to %d", v.Gang, v.Left)
		}
		if !slices.Contains(losses, loss) {
			losses = append(losses, loss)
		}
	}
	if single > 0 {
		losses = append(losses, fmt.Sprintf("%d in no gang", single))
	}
	text := fmt.Sprintf("It would evict %d pods: %s", len(r.Victims), strings.Join(losses, ", "))
	if r.Violating > 0 {
		text += fmt.Sprintf("; %d of them against a PodDisruptionBudget", r.Violating)
	}
	return text
}

// words returns the sentences before the tables.
func (r *Report) words(preempt bool) string {
	var b strings.Builder
	title := strings.ToUpper(r.Case[:1]) + r.Case[1:]
	switch {
	case r.Undecided:
		fmt.Fprintf(&b, "%s: not decided after %.1f s; %d of %d pods would be placed so far.\n", title,
			r.Seconds, r.Placed, r.Pods)
	default:
		fmt.Fprintf(&b, "%s: %d of %d pods would be placed.\n", title, r.Placed, r.Pods)
	}
	for _, why := range r.Why {
		fmt.Fprintf(&b, "  %d wait, %s: %s\n", why.Pods, cmp.Or(why.Reason, "Undecided"), why.Message)
	}
	if len(r.Others) > 0 {
		fmt.Fprintf(&b, "  Meanwhile it would evict %d pods for others that wait in the cluster.\n", len(r.Others))
	}
	if len(r.Why) > 0 && !preempt {
		fmt.Fprintln(&b, "  They evict no pods here; see --preempt.")
	}
	return b.String()
}
