package output

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
)

// The formats that are tables.
const (
	table = "table"
	wide  = "wide"
)

// formats are those of kubectl. Those with "=" are followed by a template, or the name of a file with one.
var formats = []string{
	table, wide, "json", "yaml", "kyaml",
	"jsonpath=", "jsonpath-as-json=", "jsonpath-file=", "go-template=", "go-template-file=",
}

// flags say how to print.
type flags struct {
	format    string
	noHeaders bool
}

// addTo adds them to a command.
func (f *flags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.format, "output", "o", table, "Output format: "+strings.Join(formats, ", ")+".")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Print tables without headers.")
	_ = cmd.RegisterFlagCompletionFunc("output",
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return formats, cobra.ShellCompDirectiveNoFileComp
		}) // it fails only for a flag that does not exist
}

// Command makes a command print what it finds, by these flags: run gets the printer.
func Command(cmd *cobra.Command, out io.Writer, run func(ctx context.Context, p *Printer,
	args []string) error) *cobra.Command {
	f := &flags{}
	f.addTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		printer, err := f.printer(out)
		if err != nil {
			return err
		}
		return run(cmd.Context(), printer, args)
	}
	return cmd
}

// printer returns a printer to w.
func (f *flags) printer(w io.Writer) (*Printer, error) {
	p := &Printer{flags: *f, out: w}
	switch f.format {
	case "", table, wide:
		if terminal, ok := w.(*Terminal); ok {
			p.out = terminal.to // it is given lines without what controls it, and then colours
		}
		p.coloured = printers.AllowsColorOutput(p.out)
		p.to = printers.NewTablePrinter(printers.PrintOptions{Wide: p.IsWide(), NoHeaders: f.noHeaders})
		p.columns = printers.GetNewTabWriter(&p.lines)
		return p, nil
	}
	to, err := printerOf(f.format)
	if err != nil {
		return nil, fmt.Errorf("checking --output: %w", err)
	}
	p.to = to
	return p, nil
}

// printerOf returns the printer of a format that is no table.
func printerOf(format string) (printers.ResourcePrinter, error) {
	name, template, templated := strings.Cut(format, "=")
	name = strings.ToLower(name)
	known := name
	if templated {
		known += "="
	}
	switch {
	case !slices.Contains(formats, known):
		return nil, fmt.Errorf("%q is none of %s", format, strings.Join(formats, ", "))
	case templated && template == "":
		return nil, fmt.Errorf("%q is followed by no template", format)
	}
	if kind, isFile := strings.CutSuffix(name, "-file"); isFile {
		data, err := os.ReadFile(template)
		if err != nil {
			return nil, fmt.Errorf("reading the template: %w", err)
		}
		name, template = kind, string(data)
	}
	switch name {
	case "json":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.JSONPrinter{}}, nil
	case "yaml":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}, nil
	case "kyaml":
		return &printers.OmitManagedFieldsPrinter{Delegate: &printers.KYAMLPrinter{}}, nil
	case "go-template":
		to, err := printers.NewGoTemplatePrinter([]byte(template))
		if err != nil {
			return nil, fmt.Errorf("reading the template: %w", err)
		}
		to.AllowMissingKeys(true)
		return to, nil
	default:
		to, err := printers.NewJSONPathPrinter(template)
		if err != nil {
			return nil, fmt.Errorf("reading the template: %w", err)
		}
		to.AllowMissingKeys(true)
		to.EnableJSONOutput(name == "jsonpath-as-json")
		return to, nil
	}
}
