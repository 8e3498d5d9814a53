package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	gpusPerRack   = nodesPerRack * gpusPerNode
	gpusPerWorker = 4

	notes   = "jsonpath={.items[*].message}{\"\\n\"}"
	message = "jsonpath={.status.conditions[0].message}{\"\\n\"}"
)

// tell tells the story. The workloads are in the files beside this one.
func (s *stage) tell(ctx context.Context, p *printer) error {
	for i, step := range []struct {
		title string
		do    func(context.Context, *printer) error
	}{
		{"A gang that fits one rack", s.oneRack},
		{"Two gangs in two namespaces: together or not at all", s.gangGroup},
		{"A gang too big for any rack", s.tooBig},
		{"An elastic gang grows when room appears", s.elastic},
		{"An urgent gang takes what others can do without", s.urgent},
		{"Two teams share: what was lent comes back", s.queues},
	} {
		p.title(fmt.Sprintf("%d. %s", i+1, step.title))
		if err := step.do(ctx, p); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// started awaits that so many of the pods in some namespaces run.
func (s *stage) started(ctx context.Context, after time.Time, want int, namespaces ...string) (g gang, err error) {
	expected := fmt.Sprintf("%d pods running in %s", want, strings.Join(namespaces, " and "))
	err = s.await(ctx, expected, func(seen *sightings) (string, bool) {
		g = seen.gang(after, namespaces...)
		return g.String(), g.running == want
	})
	return g, err
}

// reported awaits that a PodGroup says why it waits.
func (s *stage) reported(ctx context.Context, group, reason string, parts ...string) error {
	expected := fmt.Sprintf("PodGroup %s with reason %s and a message with %q", group, reason, strings.Join(parts, "..."))
	return s.await(ctx, expected, func(seen *sightings) (string, bool) {
		g := seen.groups[group]
		for _, part := range parts {
			if !strings.Contains(g.message, part) {
				return g.String(), false
			}
		}
		return g.String(), g.reason == reason
	})
}

// counted awaits that the status of a PodGroup shows so many running members: the controller writes
// numbers once per second, and kubectl is to print the last of them.
func (s *stage) counted(ctx context.Context, group string, running int64) error {
	expected := fmt.Sprintf("PodGroup %s with %d members running", group, running)
	return s.await(ctx, expected, func(seen *sightings) (string, bool) {
		g := seen.groups[group]
		return g.String(), g.running == running && g.reason == "MinimumBound"
	})
}

// nobodyStarted checks that none of the pods of a namespace has a node.
func (s *stage) nobodyStarted(namespace string) error {
	var err error
	s.seen.test(func(seen *sightings) (string, bool) {
		if g := seen.gang(time.Time{}, namespace); g.bound > 0 {
			err = fmt.Errorf("expected no pod of %s on a node\nSeen: %s", namespace, g)
		}
		return "", true
	})
	return err
}

func (s *stage) oneRack(ctx context.Context, p *printer) error {
	const workers = gpusPerRack / gpusPerWorker
	p.say(fmt.Sprintf(`"train" is %d workers with %d GPUs each. Its PodGroup asks for minMember: %d and for one rack. The %d GPUs
		of a rack are just enough.`, workers, gpusPerWorker, workers, gpusPerRack))
	if err := s.apply(ctx, p, "1-one-rack.yaml"); err != nil {
		return err
	}
	g, err := s.started(ctx, time.Time{}, workers, "vision")
	if err != nil {
		return err
	}
	if len(g.racks) != 1 {
		return fmt.Errorf("expected all pods in one rack\nSeen: they are in %s", strings.Join(g.racks, ", "))
	}
	p.say(fmt.Sprintf("All %d got their nodes within %s of each other, and all are in rack %s:", workers, span(g.together()), g.racks[0]))
	return s.kubectl(ctx, p, "get", "pods", "-n", "vision", "--sort-by=.spec.nodeName",
		"-o", "custom-columns=POD:.metadata.name,NODE:.spec.nodeName,STATUS:.status.phase")
}

func (s *stage) gangGroup(ctx context.Context, p *printer) error {
	const learners, actors, each = "rl-learners", "rl-actors", 4
	p.say(`Learners and actors are no use without each other. Each of the two gangs names the other in its
		annotation "groups". The learners come first: all 4, and 12 nodes are free.`)
	if err := s.apply(ctx, p, "2-learners.yaml"); err != nil {
		return err
	}
	if err := s.reported(ctx, learners+"/learners", "GangIncomplete", actors+"/actors"); err != nil {
		return err
	}
	if err := s.nobodyStarted(learners); err != nil {
		return err
	}
	p.say("They wait, hold no GPU, and after 5 s say for what:")
	if err := s.kubectl(ctx, p, "get", "podgroup", "learners", "-n", learners, "-o", message); err != nil {
		return err
	}
	p.say("The actors arrive:")
	if err := s.apply(ctx, p, "2-actors.yaml"); err != nil {
		return err
	}
	g, err := s.started(ctx, time.Time{}, 2*each, learners, actors)
	if err != nil {
		return err
	}
	if g.first.Before(g.created) {
		return fmt.Errorf("expected no binding before the last of the %d pods was there\nSeen: one that was %s earlier", 2*each, span(g.created.Sub(g.first)))
	}
	for _, group := range []string{learners + "/learners", actors + "/actors"} {
		if err := s.counted(ctx, group, each); err != nil {
			return err
		}
	}
	p.say(fmt.Sprintf("Both gangs start: %d pods in two namespaces got their nodes within %s of each other.", 2*each, span(g.together())))
	return s.kubectl(ctx, p, "get", "podgroups", "-A")
}

func (s *stage) tooBig(ctx context.Context, p *printer) error {
	const namespace, workers = "llm", 10
	p.say(fmt.Sprintf(`"pretrain" is %d workers with %d GPUs each, in one rack: %d GPUs. 64 are free, but no rack has more than %d.`,
		workers, gpusPerWorker, workers*gpusPerWorker, gpusPerRack))
	if err := s.apply(ctx, p, "3-too-big.yaml"); err != nil {
		return err
	}
	if err := s.reported(ctx, namespace+"/pretrain", "Unschedulable", "does not fit in any rack", "rack r"); err != nil {
		return err
	}
	var told []string
	if err := s.await(ctx, fmt.Sprintf("an explanation in the condition PodScheduled of all %d pods", workers), func(seen *sightings) (string, bool) {
		told = seen.told(namespace, "does not fit in any rack")
		return fmt.Sprintf("%d pods with one", len(told)), len(told) == workers
	}); err != nil {
		return err
	}
	if err := s.nobodyStarted(namespace); err != nil {
		return err
	}
	p.say("It waits without holding a single GPU, and says how far each rack would take it:")
	if err := s.kubectl(ctx, p, "get", "podgroup", "pretrain", "-n", namespace, "-o", message); err != nil {
		return err
	}
	p.say("So does each of its 10 pods, for whoever looks there; an autoscaler sees the demand of all of them:")
	return s.kubectlBegin(ctx, p, "get", "pod", told[len(told)-1], "-n", namespace, "-o", message)
}

func (s *stage) elastic(ctx context.Context, p *printer) error {
	const namespace, workers, fit = "search", 24, 16
	p.say(fmt.Sprintf(`"sweep" has %d workers with %d GPUs each and runs with 4 or more: minMember: 4, mode: NonStrict. There is room
		for %d: pretrain waits, and takes none.`,
		workers, gpusPerWorker, fit))
	if err := s.apply(ctx, p, "4-elastic.yaml"); err != nil {
		return err
	}
	g, err := s.started(ctx, time.Time{}, fit, namespace)
	if err != nil {
		return err
	}
	p.say(fmt.Sprintf("%d start, within %s of each other; %d wait. Then the job of step 1 ends:", fit, span(g.together()), workers-fit))
	ended := time.Now()
	if err := s.quietly(ctx, p, "delete", "job,podgroup", "train", "-n", "vision"); err != nil {
		return err
	}
	if g, err = s.started(ctx, ended, workers, namespace); err != nil {
		return err
	}
	if err := s.nobodyStarted("llm"); err != nil {
		return err
	}
	if err := s.counted(ctx, namespace+"/sweep", workers); err != nil {
		return err
	}
	if err := s.await(ctx, "PodGroup vision/train gone", func(seen *sightings) (string, bool) {
		_, there := seen.groups["vision/train"]
		return "it is there", !there
	}); err != nil {
		return err
	}
	p.say(fmt.Sprintf("Its rack is free, and the %d that waited run in it %s later. How everything stands now:", workers-fit, span(g.last.Sub(ended))))
	return s.kubectl(ctx, p, "get", "podgroups", "-A")
}

func (s *stage) urgent(ctx context.Context, p *printer) error {
	const namespace, workers, left = "incident", 8, 16
	p.say(fmt.Sprintf(`"replay" has a priority of 1000 and needs %d workers with %d GPUs each in one rack: all of it. The cluster is full.`,
		workers, gpusPerWorker))
	applied := time.Now()
	if err := s.apply(ctx, p, "5-urgent.yaml"); err != nil {
		return err
	}
	g, err := s.started(ctx, applied, workers, namespace)
	if err != nil {
		return err
	}
	if err := s.counted(ctx, "search/sweep", left); err != nil {
		return err
	}
	p.say(fmt.Sprintf(`It runs after %s. Nobody's job was broken for it: sweep, which runs with 4 or more, gave up what it had in one rack,
		and was told why:`, span(g.last.Sub(applied))))
	if err := s.kubectl(ctx, p, "get", "events", "-n", "search", "--field-selector", "reason=GangShrunk", "-o", notes); err != nil {
		return err
	}
	p.say("How everything stands now:")
	return s.kubectl(ctx, p, "get", "podgroups", "-A")
}

// ending says what to do next.
func (p *printer) ending(took time.Duration) {
	p.title(fmt.Sprintf("That was all, in %.0f s. The cluster stays up. To try:", took.Seconds()))
	p.code(
		"kubectl get queues -w",
		`kubectl patch queue team-a --type=merge -p '{"spec":{"weight":3}}'`,
		"                                                # a deserves 96 GPUs now, and takes 32 back",
		"kubectl delete job,podgroup --all -n team-a     # then b has the whole cluster",
	)
	p.say("Or take it down: make down NAME=" + clusterName)
}
