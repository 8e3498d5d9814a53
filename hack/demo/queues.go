package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/localcluster"
)

const (
	teamA, teamB = "team-a", "team-b"

	// Each team submits as many gangs as fill the cluster.
	teamGangs, workersPerGang = 8, 4
	gpusPerGang               = workersPerGang * gpusPerWorker

	// quiet is how long nobody may be evicted before the story says that it is over.
	quiet = 3 * time.Second
)

// queues shows that what one team has borrowed comes back to the other.
func (s *stage) queues(ctx context.Context, p *printer) error {
	if err := s.begin(ctx, p); err != nil {
		return err
	}
	if err := s.borrow(ctx, p); err != nil {
		return err
	}
	return s.takeBack(ctx, p)
}

// begin clears the stage and starts the scheduler anew, with FairShare.
func (s *stage) begin(ctx context.Context, p *printer) error {
	p.say("Teams share a cluster by queue, with the plugin FairShare. All that ran until now makes room first:")
	if err := s.quietly(ctx, p, "delete", "job,podgroup", "--all", "-A"); err != nil {
		return err
	}
	if err := s.await(ctx, "no pods", func(seen *sightings) (string, bool) {
		return fmt.Sprintf("%d pods", len(seen.pods)), len(seen.pods) == 0
	}); err != nil {
		return err
	}
	p.say("FairShare is off by default, so the scheduler starts again with a configuration that has it:")
	config := filepath.Join("hack", "demo", "6-fairshare.yaml")
	p.code("$ bin/" + scheduler + " --config=" + config)
	if err := s.restart(ctx, "--config="+config); err != nil {
		return err
	}
	p.say("Two queues of weight 1, and a namespace for each: a team deserves half of the 128 GPUs, if it asks for that much.")
	return s.apply(ctx, p, "6-queues.yaml")
}

// borrow has the first team fill the cluster.
func (s *stage) borrow(ctx context.Context, p *printer) error {
	const all = teamGangs * workersPerGang
	p.say(fmt.Sprintf(`Team a submits %d gangs of %d workers with %d GPUs each, which is all of the cluster. Each gang needs all its workers:
		minMember: %d. Team b asks for nothing yet.`, teamGangs, workersPerGang, gpusPerWorker, workersPerGang))
	if err := s.submit(ctx, p, teamA); err != nil {
		return err
	}
	if _, err := s.started(ctx, time.Time{}, all, teamA); err != nil {
		return err
	}
	if err := s.shared(ctx, teamA, queueSeen{deserved: teamGangs * gpusPerGang, allocated: teamGangs * gpusPerGang, running: teamGangs}); err != nil {
		return err
	}
	p.say("All 8 run: what b does not ask for, a may borrow.")
	return s.kubectl(ctx, p, "get", "queues")
}

// takeBack has the second team ask for its half.
func (s *stage) takeBack(ctx context.Context, p *printer) error {
	const half = teamGangs / 2
	p.say("Now team b submits as many. No priority is involved.")
	submitted := time.Now()
	if err := s.submit(ctx, p, teamB); err != nil {
		return err
	}
	g, err := s.started(ctx, submitted, half*workersPerGang, teamB)
	if err != nil {
		return err
	}
	if err := s.shared(ctx, teamA, queueSeen{deserved: half * gpusPerGang, allocated: half * gpusPerGang, running: half}); err != nil {
		return err
	}
	p.say(fmt.Sprintf(`%s later b has its half: %d of its gangs run. Of a's gangs %d were evicted, all of each: what a had beyond its half. The
		other %d are complete, and were not touched. After 10 s the Jobs of the evicted ones make new pods. These wait now, as the rest
		of b does:`, span(g.last.Sub(submitted)), half, half, half))
	for _, team := range []string{teamA, teamB} {
		if err := s.shared(ctx, team, queueSeen{deserved: half * gpusPerGang, allocated: half * gpusPerGang, running: half, pending: half}); err != nil {
			return err
		}
	}
	var told []string
	if err := s.await(ctx, "a pod of team-a that says what it waits for", func(seen *sightings) (string, bool) {
		told = seen.told(teamA, "is overused")
		return fmt.Sprintf("%d pods that do", len(told)), len(told) > 0
	}); err != nil {
		return err
	}
	if err := s.kubectl(ctx, p, "get", "pod", told[0], "-n", teamA, "-o", message); err != nil {
		return err
	}
	if err := s.stays(ctx, half); err != nil {
		return err
	}
	p.say(fmt.Sprintf("Each team asks for all of the cluster, and has its half. In the last %d s nobody else was evicted, and nobody will be:", int(quiet.Seconds())))
	return s.kubectl(ctx, p, "get", "queues")
}

// submit creates the gangs of a team, with the command that it shows.
func (s *stage) submit(ctx context.Context, p *printer, team string) error {
	line := fmt.Sprintf("for i in $(seq %d); do sed s/NAME/train-$i/ hack/demo/6-gang.yaml; done", teamGangs)
	apply := "kubectl apply -n " + team + " -f -"
	p.code("$ "+line+" \\", "    | "+apply)
	path, err := filepath.Abs(binDir)
	if err != nil {
		return fmt.Errorf("finding kubectl: %w", err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line+" | "+apply)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+path+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("submitting the gangs of %s: %w: %s", team, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// shared awaits that the status of a queue says so.
func (s *stage) shared(ctx context.Context, queue string, want queueSeen) error {
	return s.await(ctx, fmt.Sprintf("queue %s with %s", queue, want), func(seen *sightings) (string, bool) {
		got := seen.queues[queue]
		return got.String(), got == want
	})
}

// stays checks that each gang is whole or not there at all, that no more were evicted than
// had to be, and that it stays so.
func (s *stage) stays(ctx context.Context, evicted int) error {
	select {
	case <-time.After(quiet):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	s.seen.test(func(seen *sightings) (string, bool) {
		for gang, running := range seen.runningOf(teamA, teamB) {
			if running != workersPerGang {
				err = fmt.Errorf("expected all %d workers of %s or none\nSeen: %d run", workersPerGang, gang, running)
			}
		}
		if a, b := len(seen.evicted[teamA]), len(seen.evicted[teamB]); a != evicted*workersPerGang || b > 0 {
			err = fmt.Errorf("expected %d pods of %s evicted, and none of %s\nSeen: %d and %d", evicted*workersPerGang, teamA, teamB, a, b)
		}
		return "", true
	})
	return err
}

// restart starts the scheduler anew, with more arguments.
func (s *stage) restart(ctx context.Context, args ...string) error {
	stopping, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.procs[0].Stop(stopping); err != nil {
		return err
	}
	port, err := localcluster.FreePort()
	if err != nil {
		return err
	}
	if s.procs[0], err = s.startScheduler(port, args...); err != nil {
		return err
	}
	return s.awaitReady(ctx, port)
}
