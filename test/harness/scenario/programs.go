package scenario

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

// Program is a program of others that a scenario runs beside the scheduler, such as an operator. It may do everything.
type Program struct {
	Name string `json:"name"`
	// Args may contain $KUBECONFIG, $DIR (the folder of the scenario) and the variables of [Runner.Variables].
	Args []string `json:"args,omitempty"`
	// Env is set in its environment. Values may contain the same.
	Env map[string]string `json:"env,omitempty"`
	// Ready is a URL that answers 200 when it is ready; empty for a program without one. It may contain the same.
	Ready string `json:"ready,omitempty"`
}

// ProgramStep is what a step does with a program.
type ProgramStep struct {
	Name string `json:"name"`
	// Do is start, kill (SIGKILL) or restart (kill and start).
	Do string `json:"do"`
}

// expand puts in what a scenario's text asks for.
func (r *run) expand(text string) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "KUBECONFIG":
			return r.site.cluster.Kubeconfig()
		case "DIR":
			return r.dir
		}
		return r.Variables[name]
	})
}

// variables are set for the commands of a scenario.
func (r *run) variables() []string {
	list := []string{"DIR=" + r.dir}
	for name, value := range r.Variables {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

func (r *run) prepareProgram(p *Program) error {
	binary, ok := r.Programs[p.Name]
	if !ok {
		return fmt.Errorf("running %s: this runner has no such program", p.Name)
	}
	line := r.commandLine(p, binary)
	r.programs[p.Name] = &daemon{
		name: p.Name, cluster: r.site.cluster, rec: r.rec, dir: r.dir, died: r.died, binary: line[0], args: line[1:], ready: r.expand(p.Ready),
	}
	return nil
}

// commandLine starts a program, by env where it has an environment: env puts the program in its own place.
func (r *run) commandLine(p *Program, binary string) []string {
	var line []string
	if len(p.Env) > 0 {
		line = append(line, "env")
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			line = append(line, name+"="+r.expand(p.Env[name]))
		}
	}
	line = append(line, binary)
	for _, arg := range p.Args {
		line = append(line, r.expand(arg))
	}
	return line
}

// checkPrograms checks the programs of a file.
func (s *Scenario) checkPrograms() error {
	for i, step := range s.Steps {
		if step.Program == nil {
			continue
		}
		if !slices.ContainsFunc(s.Programs, func(p Program) bool { return p.Name == step.Program.Name }) {
			return fmt.Errorf("checking step %d: program.name: %q is none of the programs", i+1, step.Program.Name)
		}
		if err := oneOf("program.do", step.Program.Do, "start", "kill", "restart"); err != nil {
			return fmt.Errorf("checking step %d: %w", i+1, err)
		}
	}
	return nil
}
