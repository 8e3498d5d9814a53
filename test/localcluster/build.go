package localcluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// program is one binary built from the pinned modules of hack/tools.
type program struct {
	name string
	pkg  string
	hint string // how long a cold build takes on two cores, "" if it is not worth saying
}

// controlPlane is what a cluster runs, the slowest first so that the wait is over early.
var controlPlane = []program{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "about 4 minutes the first time"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "about 1 minute the first time"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", ""},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", ""},
	{"etcd", "go.etcd.io/etcd/server/v3", ""},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", ""},
	{"kwokctl", "sigs.k8s.io/kwok/cmd/kwokctl", ""},
}

// tools is what make verify, make generate and make bench need, built on demand.
var tools = []program{
	{"benchstat", "golang.org/x/perf/cmd/benchstat", ""},
	{"controller-gen", "sigs.k8s.io/controller-tools/cmd/controller-gen", ""},
	{"conversion-gen", "k8s.io/code-generator/cmd/conversion-gen", ""},
	{"deepcopy-gen", "k8s.io/code-generator/cmd/deepcopy-gen", ""},
	{"defaulter-gen", "k8s.io/code-generator/cmd/defaulter-gen", ""},
	{"go-errorlint", "github.com/polyfloyd/go-errorlint", ""},
	{"logcheck", "sigs.k8s.io/logtools/logcheck", ""},
	{"staticcheck", "honnef.co/go/tools/cmd/staticcheck", ""},
}

// buildFlags stamp the Kubernetes version, without which kubectl and kwokctl cannot parse it.
// VCS stamping is off: it would make every commit a new build, and fails in foreign-owned checkouts.
// There is nothing else, so that go vet and go test find most of their packages compiled already.
var buildFlags = []string{
	"-buildvcs=false", "-ldflags",
	"-s -w -X k8s.io/component-base/version.gitVersion=" + kubeVersion +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37",
}

// kubeVersion is the version of k8s.io/kubernetes in hack/tools/go.mod.
const kubeVersion = "v1.37.1"

// lockPoll is how often a build looks whether the other one that runs is done.
const lockPoll = 200 * time.Millisecond

// Build makes the control-plane binaries (etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubectl, kwok, kwokctl) from the pinned modules of hack/tools into <repository>/.local/bin.
// What is up to date is left alone. Progress lines go to progress, which may be nil.
func Build(ctx context.Context, progress io.Writer) error {
	return buildPrograms(ctx, progress, controlPlane)
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
	known := map[string]program{}
	for _, p := range append(append([]program{}, controlPlane...), tools...) {
		known[p.name] = p
	}
	wanted := make([]program, 0, len(names))
	for _, name := range names {
		p, ok := known[name]
		if !ok {
			return fmt.Errorf("building %s: no such tool", name)
		}
		wanted = append(wanted, p)
	}
	return buildPrograms(ctx, progress, wanted)
}

// builder knows the inputs that all programs share.
type builder struct {
	toolsDir, binDir, stampDir string
	inputs                     []byte // go.mod, go.sum, compiler
	progress                   io.Writer
}

func buildPrograms(ctx context.Context, progress io.Writer, programs []program) error {
	b, err := newBuilder(ctx, progress)
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
	// Asked again: the one who held the lock may have built them.
	stale := b.stale(programs)
	for i, p := range stale {
		if err := b.build(ctx, p, i+1, len(stale)); err != nil {
			return err
		}
	}
	return nil
}

func newBuilder(ctx context.Context, progress io.Writer) (*builder, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = io.Discard
	}
	b := &builder{
		toolsDir: filepath.Join(root, "hack", "tools"),
		binDir:   filepath.Join(root, ".local", "bin"),
		stampDir: filepath.Join(root, ".local", "bin", ".stamps"),
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
	// The go command of that folder, not the one that built us: its toolchain line may differ.
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

// stamp is what the binary of p depends on, hashed.
func (b *builder) stamp(p program) string {
	sum := sha256.New()
	sum.Write(b.inputs)
	fmt.Fprintf(sum, "%s %q", p.pkg, buildFlags)
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
			return nil, fmt.Errorf("locking the build: %w", err)
		}
		if !told {
			fmt.Fprintln(b.progress, "waiting for another build of the control plane ...")
			told = true
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another build: %w", context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

func (b *builder) build(ctx context.Context, p program, i, n int) error {
	count := fmt.Sprintf("%d/%d", i, n)
	if p.hint != "" {
		count += ", takes " + p.hint
	}
	fmt.Fprintf(b.progress, "building %s (%s) ...\n", p.name, count)
	start := time.Now()
	// Built aside and renamed: a cluster that runs the old binary keeps its file.
	next := filepath.Join(b.binDir, "."+p.name+".next")
	args := append([]string{"build"}, buildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", next, p.pkg)...)
	cmd.Dir = b.toolsDir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", p.name, err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(next, filepath.Join(b.binDir, p.name)); err != nil {
		return fmt.Errorf("building %s: %w", p.name, err)
	}
	if err := os.WriteFile(b.stampPath(p), []byte(b.stamp(p)), 0o644); err != nil {
		return fmt.Errorf("building %s: %w", p.name, err)
	}
	fmt.Fprintf(b.progress, "built %s in %s\n", p.name, time.Since(start).Round(time.Second))
	return nil
}
