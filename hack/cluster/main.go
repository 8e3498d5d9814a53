// Command cluster starts and stops local control planes for people, and runs what is built against them:
// make up, make run, make down. Tests use package localcluster, which does the work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

const usage = `Usage:
  cluster up [--name N] [--kubernetes V] [--nodes N] [--kubelets] [--zones Z] [--racks R] [--gpus G] [--cpu C] [--memory M]
  cluster run [--name N] [--fairshare] [--page] [--descheduler] [-- flag ...]
                                         the scheduler, with these flags, and the controller
  cluster down [--name N | --all]
  cluster list
  cluster build [tool ...]   without arguments: the control plane; prints the path of each tool
`

// upTimeout bounds a start, without the build.
const upTimeout = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	switch command, args := args[0], args[1:]; command {
	case "up":
		return up(ctx, args)
	case "run":
		return runAll(ctx, args)
	case "down":
		return down(ctx, args)
	case "list":
		return list()
	case "build":
		return build(ctx, args)
	default:
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
}

func newFlags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet("cluster "+command, flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	return flags
}

// upOptions reads the flags of up.
func upOptions(args []string) (localcluster.Options, error) {
	flags := newFlags("up")
	o := localcluster.Options{Keep: true}
	flags.StringVar(&o.Name, "name", localcluster.DefaultName, "name of the cluster")
	flags.StringVar(&o.Kubernetes, "kubernetes", "", "version of the API server: "+
		strings.Join(localcluster.Releases(), ", ")+" (default the first)")
	nodes := flags.Int("nodes", 16, "number of nodes")
	flags.BoolVar(&o.Kubelets, "kubelets", false,
		"run a kubelet for each node, whose containers do nothing, in place of KWOK")
	zones := flags.Int("zones", 2, "number of zones that the racks are spread over; 0: none")
	racks := flags.Int("racks", 4, "number of racks that the nodes are spread over; 0: none")
	gpus := flags.Int64("gpus", 8, "GPUs per node; 0: none")
	cpu := flags.String("cpu", "32", "CPUs per node")
	memory := flags.String("memory", "256Gi", "memory per node")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	allocatable := v1.ResourceList{}
	for name, value := range map[v1.ResourceName]string{v1.ResourceCPU: *cpu, v1.ResourceMemory: *memory} {
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return o, fmt.Errorf("parsing --%s %q: %w", name, value, err)
		}
		allocatable[name] = q
	}
	if *gpus > 0 {
		allocatable[localcluster.ResourceGPU] = *resource.NewQuantity(*gpus, resource.DecimalSI)
	}
	o.Nodes = []localcluster.NodePool{{
		Count: *nodes, LabelsFor: localcluster.Topology(*nodes, *zones, *racks), Allocatable: allocatable,
	}}
	return o, nil
}

func up(ctx context.Context, args []string) error {
	o, err := upOptions(args)
	if err != nil {
		return err
	}
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	if err := checkVersion(o); err != nil {
		return err
	}
	if crds, _ := filepath.Glob(filepath.Join(root, "manifests", "crds", "*.yaml")); len(crds) > 0 {
		o.Manifests = []string{filepath.Join(root, "manifests", "crds")}
	}
	if err := localcluster.Build(ctx, os.Stderr, o.Kubernetes, o.Tools()...); err != nil {
		return err
	}
	start := time.Now()
	startCtx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	c, err := localcluster.Up(startCtx, o)
	if errors.Is(err, localcluster.ErrExists) {
		fmt.Printf("Cluster %s is up already. For a fresh one, take it down first (make down%s).\n", o.Name,
			nameArgument(o.Name))
		if c, err = localcluster.Get(o.Name); err != nil {
			return err
		}
	} else if err != nil {
		return err
	} else {
		kind := "fake nodes"
		if o.Kubelets {
			kind = "kubelets"
		}
		fmt.Printf("Cluster %s is up: Kubernetes with %d %s, started in %.1f s.\n",
			o.Name, o.Nodes[0].Count, kind, time.Since(start).Seconds())
	}
	fmt.Print(hint(c.Kubeconfig(), o.Name))
	return nil
}

// checkVersion returns an error if a cluster of that name runs another Kubernetes than the one that is asked for.
func checkVersion(o localcluster.Options) error {
	if o.Kubernetes == "" {
		return nil
	}
	c, err := localcluster.Get(o.Name)
	if err != nil {
		return nil // there is none
	}
	info, err := c.Clientset().Discovery().ServerVersion()
	if err != nil {
		return nil // it does not run; Up says what to do
	}
	return compareVersions(o.Name, o.Kubernetes, info.GitVersion)
}

// compareVersions returns an error if a cluster runs another Kubernetes than the wanted one: 1.36, 1.36.3 or v1.36.3.
func compareVersions(name, wanted, running string) error {
	if v := "v" + strings.TrimPrefix(wanted, "v"); running == v || strings.HasPrefix(running, v+".") {
		return nil
	}
	return fmt.Errorf("cluster %s runs Kubernetes %s, not %s: take it down first (make down%s), or choose another NAME",
		name, running, wanted, nameArgument(name))
}

// hint returns what to do with a cluster that is up.
func hint(kubeconfig, name string) string {
	lines := [][2]string{
		{"export KUBECONFIG=" + kubeconfig, ""},
		{filepath.Join(".local", "bin", "kubectl") + " get nodes", "or your own kubectl"},
		{"make run" + nameArgument(name), "build the scheduler and the controller and run them against this cluster"},
		{"make down" + nameArgument(name), "stop everything and remove all files of the cluster"},
	}
	var text strings.Builder
	text.WriteString("No scheduler runs in it yet. What to do next:\n\n")
	for _, line := range lines {
		if line[1] == "" {
			fmt.Fprintf(&text, "  %s\n", line[0])
			continue
		}
		fmt.Fprintf(&text, "  %-27s # %s\n", line[0], line[1])
	}
	return text.String()
}

func down(ctx context.Context, args []string) error {
	flags := newFlags("down")
	name := flags.String("name", localcluster.DefaultName, "name of the cluster")
	all := flags.Bool("all", false, "every cluster of this checkout, those of running tests too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *all {
		if err := localcluster.DownAll(ctx); err != nil {
			return err
		}
		fmt.Println("All local clusters are down.")
		return nil
	}
	if err := localcluster.Down(ctx, *name); err != nil {
		return err
	}
	fmt.Printf("Cluster %s is down.\n", *name)
	return nil
}

func list() error {
	states, err := localcluster.List()
	if err != nil {
		return err
	}
	if len(states) == 0 {
		fmt.Println("No local clusters.")
	}
	for _, s := range states {
		note := ""
		if s.Stale {
			note = "  (left behind; the next start of any cluster removes it)"
		}
		fmt.Printf("%s  %d processes  KUBECONFIG=%s%s\n", s.Name, s.Processes, s.Kubeconfig, note)
	}
	return nil
}

func build(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return localcluster.Build(ctx, os.Stderr, "", "kube-scheduler")
	}
	if err := localcluster.BuildTools(ctx, os.Stderr, names...); err != nil {
		return err
	}
	for _, name := range names {
		path, err := localcluster.Binary(name)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
