package localcluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// program is one binary built from the pinned modules of hack/tools.
type program struct {
	name string
	pkg  string
	// module is the folder in hack/tools whose go.mod pins it: a module of its own where its dependencies are not to mix
	// with those of the control plane. Empty for hack/tools itself.
	module string
}

// controlPlane is what a cluster runs, and what starts it and talks to it.
var controlPlane = []program{
	{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
	{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
	{name: "kwokctl", pkg: "sigs.k8s.io/kwok/cmd/kwokctl"},
}

// tools is what make verify, make generate, make bench and make release need, and the scheduler that tests and
// benchmarks run beside ours, and what runs the nodes with Options.Kubelets, built on demand.
var tools = []program{
	{name: "benchstat", pkg: "golang.org/x/perf/cmd/benchstat"},
	{name: "controller-gen", pkg: "sigs.k8s.io/controller-tools/cmd/controller-gen"},
	{name: "conversion-gen", pkg: "k8s.io/code-generator/cmd/conversion-gen"},
	{name: "cyclonedx-gomod", pkg: "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod", module: "sbom"},
	{name: "deepcopy-gen", pkg: "k8s.io/code-generator/cmd/deepcopy-gen"},
	{name: "defaulter-gen", pkg: "k8s.io/code-generator/cmd/defaulter-gen"},
	{name: "go-errorlint", pkg: "github.com/polyfloyd/go-errorlint"},
	{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", module: "helm"},
	{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
	{name: kubelets, pkg: "github.com/lockstep-sh/lockstep/hack/tools/kubelets"},
	{name: "logcheck", pkg: "sigs.k8s.io/logtools/logcheck"},
	{name: "staticcheck", pkg: "honnef.co/go/tools/cmd/staticcheck"},
}

// output returns the name that go build gives to the binary.
func (p program) output() string {
	dir, base := path.Split(p.pkg)
	if majorVersion.MatchString(base) {
		base = path.Base(dir)
	}
	return base
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// kubeVersion is the version of k8s.io/kubernetes in hack/tools/go.mod.
const kubeVersion = "v1.37.2"

// lockPoll is the interval of looking whether the other build that runs is done.
const lockPoll = 200 * time.Millisecond

// Build makes the control-plane binaries (etcd, kube-apiserver, kube-controller-manager, kubectl, kwok, kwokctl) from
// the pinned modules of hack/tools into <repository>/.local/bin, and the tools that are named. With kubernetes, a name
// as in Options.Kubernetes, it makes what a cluster of that version needs beside them. What is up to date is left
// alone. Progress lines go to progress, which may be nil.
func Build(ctx context.Context, progress io.Writer, kubernetes string, toolNames ...string) error {
	r, err := releaseNamed(kubernetes)
	if err != nil {
		return err
	}
	also, err := toolsNamed(toolNames)
	if err != nil {
		return err
	}
	return buildPrograms(ctx, progress, slices.Concat(r.programs(), controlPlane, also))
}

// BuildCommands makes the commands of this repository in bin/, so that what is tested is the code as it is now.
func BuildCommands(ctx context.Context) error {
	root, err := Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "make", "--silent", "build")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the commands: %w\n%s", err, out)
	}
	return nil
}

// BuildTools makes the named programs, of the control plane or of the tools for verify and generate.
func BuildTools(ctx context.Context, progress io.Writer, names ...string) error {
	wanted, err := toolsNamed(names)
	if err != nil {
		return err
	}
	return buildPrograms(ctx, progress, wanted)
}

func toolsNamed(names []string) ([]program, error) {
	known := map[string]program{}
	for _, p := range slices.Concat(controlPlane, tools) {
		known[p.name] = p
	}
	wanted := make([]program, 0, len(names))
	for _, name := range names {
		p, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("building %s: no such tool", name)
		}
		wanted = append(wanted, p)
	}
	return wanted, nil
}

// builder knows the inputs that all programs of a module share.
type builder struct {
	toolsDir, binDir, stampDir string
	flags                      []string
	inputs                     []byte // go.mod, go.sum, compiler
	progress                   io.Writer
}

func buildPrograms(ctx context.Context, progress io.Writer, programs []program) error {
	byModule := map[string][]program{}
	for _, p := range programs {
		byModule[p.module] = append(byModule[p.module], p)
	}
	for _, module := range slices.Sorted(maps.Keys(byModule)) {
		if err := buildModule(ctx, progress, module, byModule[module]); err != nil {
			return err
		}
	}
	return nil
}

// buildModule builds programs of one module.
func buildModule(ctx context.Context, progress io.Writer, module string, programs []program) error {
	b, err := newBuilder(ctx, progress, module)
	if err != nil {
		return err
	}
	if len(b.stale(programs)) == 0 {
		return nil
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// Looked up again: the process that held the lock may have built them.
	if stale := b.stale(programs); len(stale) > 0 {
		return b.build(ctx, stale)
	}
	return nil
}

func newBuilder(ctx context.Context, progress io.Writer, module string) (*builder, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = io.Discard
	}
	r := releaseIn(module)
	binDir := filepath.Join(root, ".local", "bin", r.module)
	b := &builder{
		toolsDir: filepath.Join(root, "hack", "tools", module),
		binDir:   binDir,
		stampDir: filepath.Join(binDir, ".stamps"),
		flags:    r.buildFlags(),
		progress: progress,
	}
	if err := os.MkdirAll(b.stampDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder for binaries: %w", err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(b.toolsDir, name))
		if err != nil {
			return nil, fmt.Errorf("reading the pinned tools: %w", err)
		}
		b.inputs = append(b.inputs, data...)
	}
	// The go command of that folder, not the one that built this: its toolchain line may differ.
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = b.toolsDir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the version of go: %w", err)
	}
	b.inputs = append(b.inputs, out...)
	return b, nil
}

// stale returns the programs whose binary is missing or was made from something else.
func (b *builder) stale(programs []program) []program {
	var stale []program
	for _, p := range programs {
		stamp, stampErr := os.ReadFile(b.stampPath(p))
		_, binErr := os.Stat(filepath.Join(b.binDir, p.name))
		if stampErr != nil || binErr != nil || string(stamp) != b.stamp(p) {
			stale = append(stale, p)
		}
	}
	return stale
}

func (b *builder) stampPath(p program) string { return filepath.Join(b.stampDir, p.name) }

// stamp returns what the binary of p depends on, hashed.
func (b *builder) stamp(p program) string {
	sum := sha256.New()
	sum.Write(b.inputs)
	if own, err := os.ReadFile(filepath.Join(b.toolsDir, p.name, "main.go")); err == nil { // a program of our own
		sum.Write(own)
	}
	fmt.Fprintf(sum, "%s %q", p.pkg, b.flags)
	return fmt.Sprintf("%x\n", sum.Sum(nil))
}

// lock keeps two builds from doing the same work, and from half-written binaries.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.stampDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the build: %w", err)
	}
	for told := false; ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil // closing unlocks
		}
		if err != syscall.EWOULDBLOCK {
			_ = file.Close()
			return nil, fmt.Errorf("locking the build: %w", err)
		}
		if !told {
			fmt.Fprintln(b.progress, "waiting for another build of the control plane ...")
			told = true
		}
		if err := await.Pause(ctx, lockPoll); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another build: %w", err)
		}
	}
}

// build makes programs in one go: no core waits while one of them is linked.
func (b *builder) build(ctx context.Context, programs []program) error {
	names, packages := make([]string, len(programs)), make([]string, len(programs))
	for i, p := range programs {
		names[i], packages[i] = p.name, p.pkg
	}
	list := strings.Join(names, ", ")
	fmt.Fprintf(b.progress, "building %s (the first time all of Kubernetes is compiled for it) ...\n", list)
	start := time.Now()
	// Built aside and renamed: a cluster that runs the old binary keeps its file.
	next := filepath.Join(b.binDir, ".next") + string(filepath.Separator)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-v"}, b.flags, []string{"-o", next}, packages)...)
	cmd.Dir = b.toolsDir
	cmd.Env = append(os.Environ(), "GOGC=off", "GOMEMLIMIT=2GiB") // the compiler takes less CPU, and more memory
	compiled := &lineCounter{}
	cmd.Stdout, cmd.Stderr = compiled, compiled
	stop := b.tellProgress(compiled, start)
	err := cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", list, err, compiled.tail())
	}
	for _, p := range programs {
		if err := os.Rename(filepath.Join(next, p.output()), filepath.Join(b.binDir, p.name)); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
		if err := os.WriteFile(b.stampPath(p), []byte(b.stamp(p)), 0o644); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
	}
	fmt.Fprintf(b.progress, "built %s in %s\n", list, time.Since(start).Round(time.Second))
	return nil
}

// progressEvery is how often a build that takes long reports that it is at work.
const progressEvery = 30 * time.Second

// tellProgress reports now and then how many packages are compiled, until stop is called.
func (b *builder) tellProgress(compiled *lineCounter, start time.Time) (stop func()) {
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				fmt.Fprintf(b.progress, "... %d packages compiled after %s\n", compiled.lines(), time.Since(start).Round(time.Second))
			}
		}
	})
	return func() {
		close(ended)
		done.Wait()
	}
}

// lineCounter is the output of a command: go build -v prints a line for each package.
type lineCounter struct {
	mu  sync.Mutex
	out bytes.Buffer
	n   int
}

// Write implements io.Writer.
func (c *lineCounter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += bytes.Count(p, []byte("\n"))
	return c.out.Write(p)
}

func (c *lineCounter) lines() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// tail returns the last lines, among which an error is.
func (c *lineCounter) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-errorTail):], "\n")
}

const errorTail = 40 // lines
