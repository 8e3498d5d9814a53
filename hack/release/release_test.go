package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

func TestChartVersion(t *testing.T) {
	for code, want := range map[string]string{
		"v0.1.0":                "0.1.0",
		"v0.2.0-rc.1":           "0.2.0-rc.1",
		"v0.1.0-12-g7f6e958":    "0.1.0-12-g7f6e958",
		"7f6e958":               "0.0.0-g7f6e958",
		"0123456":               "0.0.0-g0123456",
		"7f6e958-dirty":         "0.0.0-g7f6e958-dirty",
		"v1":                    "0.0.0-gv1",
		"my/branch with spaces": "0.0.0-gmy-branch-with-spaces",
	} {
		if got := chartVersion(code); got != want {
			t.Errorf("version of the chart of %s: %s, want %s", code, got, want)
		}
	}
}

func TestParsePlatforms(t *testing.T) {
	got, err := parsePlatforms("linux/amd64,linux/arm64")
	if diff := cmp.Diff([]platform{{"linux", "amd64"}, {"linux", "arm64"}}, got, cmp.AllowUnexported(platform{})); diff != "" || err != nil {
		t.Errorf("platforms (-want +got), error %v:\n%s", err, diff)
	}
	for _, bad := range []string{"", "linux", "linux/", "darwin/arm64", "linux/amd64,"} {
		if got, err := parsePlatforms(bad); err == nil {
			t.Errorf("platforms %q: %v, want an error", bad, got)
		}
	}
}

// pack makes an archive as another tool would.
func pack(t *testing.T, at time.Time, names ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	zip.ModTime = at
	archive := tar.NewWriter(zip)
	for _, name := range names {
		header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(name)), ModTime: at, Uid: 7, Uname: "somebody"}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRepack: an archive shows neither when it was packed nor in which order.
func TestRepack(t *testing.T) {
	one, err := repack(pack(t, time.Unix(1, 0), "c/values.yaml", "c/Chart.yaml", "c/a"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := repack(pack(t, time.Unix(9, 0), "c/Chart.yaml", "c/a", "c/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Error("the same files give different archives")
	}
	entries, err := unpack(one)
	want := []entry{{"c/Chart.yaml", []byte("c/Chart.yaml")}, {"c/a", []byte("c/a")}, {"c/values.yaml", []byte("c/values.yaml")}}
	if diff := cmp.Diff(want, entries, cmp.AllowUnexported(entry{})); diff != "" || err != nil {
		t.Errorf("files (-want +got), error %v:\n%s", err, diff)
	}
	if _, err := repack([]byte("no archive")); err == nil {
		t.Error("what is no archive was packed")
	}
}

func TestWriteSums(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"linux/amd64/b": "b", "a": "a", "c.tgz": ""} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	check := exec.Command("sha256sum", "--check", sumsFile)
	check.Dir = dir
	out, err := check.CombinedOutput()
	if want := "a: OK\nc.tgz: OK\nlinux/amd64/b: OK\n"; err != nil || string(out) != want {
		t.Errorf("sha256sum --check: %v\n%s\nwant\n%s", err, out, want)
	}
}

// TestCheckStatic: it distinguishes what Go builds without and with C.
func TestCheckStatic(t *testing.T) {
	for name, tc := range map[string]struct {
		source, cgo string
		static      bool
	}{
		"without C":  {`package main; import _ "net"; func main() {}`, "0", true},
		"with C":     {`package main; import "C"; func main() {}`, "1", false},
		"no program": {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "main.go")
			if err := os.WriteFile(file, []byte(tc.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.source != "" {
				build := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), file)
				build.Env = append(os.Environ(), "CGO_ENABLED="+tc.cgo)
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("building: %v\n%s", err, out)
				}
				file = filepath.Join(dir, "program")
			}
			if err := checkStatic(file); (err == nil) != tc.static {
				t.Errorf("error %v, want static %t", err, tc.static)
			}
		})
	}
}

// TestDockerfile: each program that runs in the cluster has an image of nothing but itself and its licences, as the
// user that the manifests name.
func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	want := []string{"FROM scratch AS base", "COPY LICENSES /LICENSES", "USER 65532:65532"}
	for _, name := range []string{"lockstep-scheduler", "lockstep-controller", "lockstep-descheduler"} {
		want = append(want, "FROM base AS "+name, "ARG TARGETARCH",
			"COPY linux/${TARGETARCH}/"+name+" /"+name, `ENTRYPOINT ["/`+name+`"]`)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instructions (-want +got):\n%s", diff)
	}
	all, err := commands(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range all {
		if !isPlugin(command) && !strings.Contains(string(data), "FROM base AS "+binaryName(command)+"\n") {
			t.Errorf("cmd/%s has no image", command)
		}
	}
}

// TestLicenses: the modules of a binary are listed, with the version that replaces theirs; a text that several have is
// there once.
func TestLicenses(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: root, out: t.TempDir()}
	file := filepath.Join(r.out, "linux", "amd64", "release")
	if _, err := r.command(t.Context(), nil, "go", "build", "-o", file, "./hack/release"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+bomSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.licenses(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(r.out, licensesFile))
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{"\nLockstep\n", "\nGo and its standard library\n", "\nk8s.io/apimachinery v0.37.", "\nsigs.k8s.io/yaml v", "Copyright 2009 The Go Authors"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", licensesFile, want)
		}
	}
	license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	if count := strings.Count(got, strings.TrimSpace(string(license))); count != 1 {
		t.Errorf("the licence of Lockstep is there %d times, want 1", count)
	}
	if strings.Contains(got, "\ngithub.com/google/go-cmp ") {
		t.Errorf("%s has a module that only tests need", licensesFile)
	}
	if _, err := licensesIn(t.TempDir()); err == nil {
		t.Error("a module without a licence is no error")
	}
}

// TestPush: each image is pushed for all platforms, signed by its digest, and has the SBOM of each platform; so are the
// chart and the checksums signed.
func TestPush(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	dist, programs, log := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "log")
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	images := []string{"lockstep-scheduler", "lockstep-controller", "lockstep-descheduler"}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, image := range images {
			write(filepath.Join(dist, "linux", arch, image+bomSuffix), "{}", 0o600)
		}
	}
	write(filepath.Join(dist, "Dockerfile"), string(dockerfile), 0o600)
	for _, file := range []string{"lockstep-0.2.0.tgz", sumsFile, licensesFile} {
		write(filepath.Join(dist, file), "", 0o600)
	}
	// The programs that it calls write down what they are called with.
	for program, prints := range map[string]string{"docker": "", "cosign": "", "jq": "sha256:1", "helm": "Digest: sha256:2"} {
		write(filepath.Join(programs, program), fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >> %s\necho %s\n", program, log, prints), 0o700)
	}
	push := func(version string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "release", "push.sh"), dist)
		cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "VERSION="+version, "REGISTRY=host/project")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := push("v9.9.9"); err == nil || !strings.Contains(out, "appVersion") {
		t.Errorf("a version that is not that of the chart: %v, %s", err, out)
	}
	version := appVersion(t, root)
	if out, err := push(version); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	called, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"helm push " + dist + "/lockstep-0.2.0.tgz oci://host/project/charts\n", "cosign sign --yes host/project/charts/lockstep@sha256:2\n",
		"cosign sign-blob --yes --bundle " + dist + "/SHA256SUMS.sigstore.json " + dist + "/SHA256SUMS\n",
	}
	for _, image := range images {
		want = append(want, "docker buildx build --target "+image+" --platform linux/amd64,linux/arm64 --tag host/project/"+image+":"+version+" ",
			"cosign sign --yes --recursive host/project/"+image+"@sha256:1\n")
		for _, arch := range []string{"amd64", "arm64"} {
			want = append(want, "cosign attest --yes --type cyclonedx --predicate "+dist+"/linux/"+arch+"/"+image+bomSuffix+" host/project/"+image+"@sha256:1\n")
		}
	}
	for _, line := range want {
		if strings.Count(string(called), line) != 1 {
			t.Errorf("it was not called once: %s\nin\n%s", line, called)
		}
	}
	list, err := exec.CommandContext(t.Context(), "tar", "--list", "--file", filepath.Join(dist, "lockstep-"+version+"-linux-arm64.tar.gz")).CombinedOutput()
	if err != nil {
		t.Fatalf("listing the archive of linux/arm64: %v\n%s", err, list)
	}
	for _, file := range append(images, licensesFile) {
		if !strings.Contains(string(list), file) {
			t.Errorf("the archive of linux/arm64 lacks %s:\n%s", file, list)
		}
	}
}

// appVersion returns that of the chart.
func appVersion(t *testing.T, root string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "manifests", "chart", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(data, &chart); err != nil {
		t.Fatal(err)
	}
	if want := chartVersion(chart.AppVersion); chart.Version != want {
		t.Errorf("version of the chart: %s, want that of its appVersion, %s", chart.Version, want)
	}
	return chart.AppVersion
}

// TestReleaseWorkflow: it can be read, its commands parse, and the commands of this repository in it exist.
func TestReleaseWorkflow(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", ".github", "workflows", "release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	if err := yaml.Unmarshal(data, &workflow); err != nil {
		t.Fatal(err)
	}
	commands := ""
	for _, step := range workflow.Jobs["release"].Steps {
		parse := exec.CommandContext(t.Context(), "bash", "-n")
		parse.Stdin = strings.NewReader(step.Run)
		if out, err := parse.CombinedOutput(); err != nil {
			t.Errorf("parsing %s: %v\n%s", step.Run, err, out)
		}
		commands += step.Run + "\n"
	}
	for _, want := range []string{"make release ", "hack/release/push.sh\n"} {
		if !strings.Contains(commands, want) {
			t.Errorf("its commands lack %q:\n%s", want, commands)
		}
	}
}

// TestChartAndInstall: what is made of the manifests has the version and the registry of the release in it, and
// is the same each time.
func TestChartAndInstall(t *testing.T) {
	root, err := localcluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.BuildTools(t.Context(), t.Output(), "kubectl", "helm"); err != nil {
		t.Fatal(err)
	}
	var made [2]map[string]string
	for i := range made {
		r := &release{root: root, out: t.TempDir(), version: "v1.2.3", registry: "host:5000/project"}
		for _, part := range []func(context.Context) error{r.chart, r.install, r.dockerfile} {
			if err := part(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		made[i] = map[string]string{}
		for _, name := range []string{"lockstep-1.2.3.tgz", "install.yaml", "Dockerfile"} {
			data, err := os.ReadFile(filepath.Join(r.out, name))
			if err != nil {
				t.Fatal(err)
			}
			made[i][name] = string(data)
		}
	}
	if made[0]["lockstep-1.2.3.tgz"] != made[1]["lockstep-1.2.3.tgz"] || made[0]["install.yaml"] != made[1]["install.yaml"] {
		t.Error("the same code gives different files")
	}
	for _, want := range []string{
		"image: host:5000/project/lockstep-scheduler:v1.2.3\n", "image: host:5000/project/lockstep-controller:v1.2.3\n",
		"kind: CustomResourceDefinition\n", "name: reservations.scheduling.lockstep.dev\n", "kind: ClusterRole\n",
	} {
		if !strings.Contains(made[0]["install.yaml"], want) {
			t.Errorf("install.yaml lacks %q", want)
		}
	}
	checkChart(t, []byte(made[0]["lockstep-1.2.3.tgz"]))
}

// ofChart are the files that a chart may have: no overlays, samples or texts of this repository.
var ofChart = regexp.MustCompile(`^lockstep/(Chart\.yaml|values\.yaml|values\.schema\.json|\.helmignore|templates/[a-zA-Z_-]+\.(yaml|tpl|txt)|` +
	`crds/[a-z0-9_.-]+\.yaml|files/(base|config|rbac|descheduler/workload|descheduler-cron/workload|gangs-by-owner|keys|pools)/[a-z-]+\.yaml|` +
	`files/monitoring/(alerts\.yaml|dashboard\.json|role-binding\.yaml))$`)

// secretLimit is how large a Secret may be. Helm stores the chart in one, with its release.
const secretLimit = 1 << 20

func checkChart(t *testing.T, packed []byte) {
	t.Helper()
	entries, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		all[e.name] = string(e.data)
		if !ofChart.MatchString(e.name) || strings.HasSuffix(e.name, "/kustomization.yaml") {
			t.Errorf("the chart has %s in it", e.name)
		}
	}
	for name, want := range map[string]string{
		"lockstep/Chart.yaml":                               "appVersion: v1.2.3\n",
		"lockstep/files/base/scheduler.yaml":                "name: lockstep-scheduler\n",
		"lockstep/crds/scheduling.lockstep.dev_queues.yaml": "name: queues.scheduling.lockstep.dev\n",
	} {
		if !strings.Contains(all[name], want) {
			t.Errorf("%s in the chart lacks %q", name, want)
		}
	}
	if len(packed) > secretLimit/2 {
		t.Errorf("the chart has %d bytes, want at most half of what a Secret may have", len(packed))
	}
}

func TestWithoutHashesOfTools(t *testing.T) {
	got, err := withoutHashesOfTools([]byte(`{"metadata": {"tools": [{"name": "x", "hashes": [1]}]}, "components": [{"hashes": [2]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"components":[{"hashes":[2]}],"metadata":{"tools":[{"name":"x"}]}}`
	if got := strings.Join(strings.Fields(string(got)), ""); got != want {
		t.Errorf("SBOM: %s, want %s", got, want)
	}
	for _, bad := range []string{"", "{}", `{"metadata": {}}`} {
		if got, err := withoutHashesOfTools([]byte(bad)); err == nil {
			t.Errorf("%q gives %s, want an error", bad, got)
		}
	}
}
