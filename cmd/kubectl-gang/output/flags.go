package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// The formats that are tables.
const (
	table = "table"
	wide  = "wide"
)

// Flags say how to print.
type Flags struct {
	format    string
	noHeaders bool
	asData    *genericclioptions.JSONYamlPrintFlags
	template  *genericclioptions.KubeTemplatePrintFlags
}

// NewFlags returns flags of which nobody has said anything.
func NewFlags() *Flags {
	return &Flags{format: table, asData: genericclioptions.NewJSONYamlPrintFlags(), template: genericclioptions.NewKubeTemplatePrintFlags()}
}

// AddFlags adds them to a command.
func (f *Flags) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.format, "output", "o", f.format, "Output format: "+strings.Join(f.formats(), ", ")+".")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Print tables without headers.")
	f.template.AddFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return f.formats(), cobra.ShellCompDirectiveNoFileComp
	}) // it fails only for a flag that there is not
}

func (f *Flags) formats() []string {
	return slices.Concat([]string{table, wide}, f.asData.AllowedFormats(), f.template.AllowedFormats())
}

// Printer returns a printer to w.
func (f *Flags) Printer(w io.Writer) (*Printer, error) {
	p := &Printer{out: w}
	switch f.format {
	case "", table, wide:
		p.wide, p.table = f.format == wide, true
		p.to = printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide, NoHeaders: f.noHeaders})
		if printers.AllowsColorOutput(w) {
			p.out = &painter{to: w}
		}
		return p, nil
	}
	to, err := f.asData.ToPrinter(f.format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		to, err = f.template.ToPrinter(f.format)
	}
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("checking --output: %q is none of %s", f.format, strings.Join(f.formats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading --output: %w", err)
	}
	p.to = to
	return p, nil
}

// Printer prints lists of what was found.
type Printer struct {
	out         io.Writer
	to          printers.ResourcePrinter
	table, wide bool
}

// Columns are those of a table, and the cells of a row of type T.
type Columns[T any] []Column[T]

// Column is a column of a table.
type Column[T any] struct {
	Name string
	// Wide: the column is shown by -o wide only.
	Wide bool
	// Of is its cell.
	Of func(T) any
}

// Print prints a list: as a table by its columns, and otherwise as an object of the kind, with all that T has.
func Print[T any](p *Printer, kind string, columns Columns[T], items []T) error {
	if !p.table {
		return p.to.PrintObj(newList(kind, items), p.out)
	}
	t := &metav1.Table{}
	for _, column := range columns {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string"}
		if column.Wide {
			definition.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, definition)
	}
	for _, item := range items {
		row := metav1.TableRow{}
		for _, column := range columns {
			row.Cells = append(row.Cells, column.Of(item))
		}
		t.Rows = append(t.Rows, row)
	}
	if err := p.to.PrintObj(t, p.out); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Table prints a table by itself, of several.
func Table[T any](flags *Flags, w io.Writer, columns Columns[T], items []T) error {
	p, err := flags.Printer(w)
	if err != nil {
		return err
	}
	return Print(p, "", columns, items)
}

// IsTable reports whether people are to read it.
func (p *Printer) IsTable() bool { return p.table }

// IsWide reports whether they want to read more.
func (p *Printer) IsWide() bool { return p.wide }
