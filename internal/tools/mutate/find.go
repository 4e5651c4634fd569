package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// findAll lists the mutants of the package in a directory, in the order of the code.
func findAll(dir string) ([]*source, []*mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	var files []*source
	var all []*mutant
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		file, found, err := find(path, text)
		if err != nil {
			return nil, nil, err
		}
		files, all = append(files, file), append(all, found...)
	}
	return files, all, nil
}

func find(path string, text []byte) (*source, []*mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	file := fset.File(tree.FileStart)
	f := &finder{source: &source{path: path, text: text, line: file.Lines()}, file: file}
	if !ast.IsGenerated(tree) {
		ast.Inspect(tree, f.visit)
	}
	slices.SortStableFunc(f.found, func(a, b *mutant) int { return a.start - b.start })
	return f.source, f.found, nil
}

type finder struct {
	source *source
	file   *token.File
	around []ast.Node // from the file down to the node that is visited
	found  []*mutant
}

func (f *finder) visit(n ast.Node) bool {
	if n == nil {
		f.around = f.around[:len(f.around)-1]
		return true
	}
	if skipped(n) {
		return false
	}
	f.around = append(f.around, n)
	switch n := n.(type) {
	case *ast.FuncDecl:
		f.function(n.Type, n.Body)
	case *ast.FuncLit:
		f.function(n.Type, n.Body)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !f.isCondition(n) {
			f.expression("drop !", n.OpPos, n.OpPos+1, "")
		}
	case *ast.Ident:
		f.ident(n)
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT && !f.isCapacity(n) {
			f.expression("one more", n.Pos(), n.End(), strconv.Itoa(v+1))
		}
	case ast.Stmt:
		f.statement(n)
	}
	if e, ok := n.(ast.Expr); ok && f.isCondition(e) {
		f.add("never", e.Pos(), e.End(), "false", f.host(boolean, e))
		f.add("always", e.Pos(), e.End(), "true", f.host(boolean, e))
	}
	return true
}

// parent is the node around the one that is visited, n levels up.
func (f *finder) parent(n int) ast.Node {
	if len(f.around) <= n {
		return nil
	}
	return f.around[len(f.around)-1-n]
}

// isCondition tells whether the node that is visited is all of the condition of an if, or of a case of a switch
// without a tag.
func (f *finder) isCondition(e ast.Expr) bool {
	switch p := f.parent(1).(type) {
	case *ast.IfStmt:
		return p.Cond == e
	case *ast.CaseClause:
		s, ok := f.parent(3).(*ast.SwitchStmt)
		return ok && s.Tag == nil && slices.Contains(p.List, e)
	}
	return false
}

// isCapacity tells whether the node that is visited is the capacity in make([]T, length, capacity), which decides
// nothing.
func (f *finder) isCapacity(e ast.Expr) bool {
	call, ok := f.parent(1).(*ast.CallExpr)
	return ok && isCallOf(call, "make") && len(call.Args) == 3 && call.Args[2] == e
}

func (f *finder) function(signature *ast.FuncType, body *ast.BlockStmt) {
	if len(body.List) == 0 {
		return
	}
	zeros := "return"
	if signature.Results != nil {
		var values []string
		for _, r := range signature.Results.List {
			if len(r.Names) > 0 { // the results themselves are zero at that place
				values = nil
				break
			}
			values = append(values, "*new("+f.textOf(r.Type)+")")
		}
		zeros = strings.TrimSpace("return " + strings.Join(values, ", "))
	}
	if r, ok := body.List[0].(*ast.ReturnStmt); ok && returnsZeros(r) {
		return
	}
	at := f.file.Offset(body.Lbrace) + 1
	f.found = append(f.found, &mutant{
		file: f.source, change: "return at once", start: at, end: at, text: " " + zeros + ";",
		host: host{kind: entry, start: at, end: at},
	})
}

func returnsZeros(r *ast.ReturnStmt) bool {
	return !slices.ContainsFunc(r.Results, func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name != "nil" && e.Name != "false"
		case *ast.BasicLit:
			return e.Value != "0" && e.Value != `""`
		}
		return true
	})
}

var (
	comparisons = map[token.Token][]token.Token{
		token.EQL: {token.NEQ},
		token.NEQ: {token.EQL},
		token.LSS: {token.LEQ, token.GEQ},
		token.LEQ: {token.LSS, token.GTR},
		token.GTR: {token.GEQ, token.LEQ},
		token.GEQ: {token.GTR, token.LSS},
	}
	arithmetic = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	}
	assigning = map[token.Token]token.Token{token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN}
)

func (f *finder) binary(n *ast.BinaryExpr) {
	opEnd := n.OpPos + token.Pos(len(n.Op.String()))
	if n.Op == token.LAND || n.Op == token.LOR {
		f.add("drop a term", n.X.Pos(), n.Y.Pos(), "", f.host(boolean, n))
		f.add("drop a term", n.X.End(), n.Y.End(), "", f.host(boolean, n))
	}
	for i, op := range comparisons[n.Op] {
		opposite := i == len(comparisons[n.Op])-1
		if !opposite || !f.isCondition(n) { // never and always are harder to notice
			f.add(n.Op.String()+" to "+op.String(), n.OpPos, opEnd, op.String(), f.host(boolean, n))
		}
	}
	if op, ok := arithmetic[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
		f.expression(n.Op.String()+" to "+op.String(), n.OpPos, opEnd, op.String())
	}
}

func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}

func (f *finder) ident(n *ast.Ident) {
	switch n.Name {
	case "true", "false":
		if !f.isCondition(n) {
			f.add("true, false", n.Pos(), n.End(), strconv.FormatBool(n.Name == "false"), f.host(boolean, n))
		}
	case "err":
		if r, ok := f.parent(1).(*ast.ReturnStmt); ok && r.Results[len(r.Results)-1] == n {
			f.expression("err to nil", n.Pos(), n.End(), "nil")
		}
	}
}

func (f *finder) statement(n ast.Stmt) {
	if !f.isListed(n) {
		return
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if op, ok := assigning[n.Tok]; ok && !isText(n.Rhs[0]) {
			f.expression(n.Tok.String()+" to "+op.String(), n.TokPos, n.TokPos+2, op.String())
		}
		if id, ok := n.Lhs[0].(*ast.Ident); n.Tok == token.DEFINE || ok && id.Name == "_" && len(n.Lhs) == 1 {
			return
		}
	case *ast.IncDecStmt:
		op := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
		f.expression(n.Tok.String()+" to "+op, n.TokPos, n.TokPos+2, op)
	case *ast.ReturnStmt:
		if len(n.Results) > 0 || f.returnsValues() {
			return
		}
	case *ast.BranchStmt:
		if n.Tok != token.BREAK && n.Tok != token.CONTINUE {
			return
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
	default:
		return
	}
	f.add("delete", n.Pos(), n.End(), "", f.host(statement, n))
}

// isListed tells whether a statement is one of a list, so that an if can be put around it.
func (f *finder) isListed(n ast.Stmt) bool {
	return f.isListedAt(n, 1)
}

func (f *finder) isListedAt(n ast.Stmt, up int) bool {
	switch p := f.parent(up).(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return p.Comm != n
	}
	return false
}

// returnsValues tells whether the function around has results.
func (f *finder) returnsValues() bool {
	for _, n := range slices.Backward(f.around) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return n.Type.Results != nil
		case *ast.FuncLit:
			return n.Type.Results != nil
		}
	}
	return false
}

// expression adds a change somewhere inside of an expression, whose host is the nearest piece of code that can be
// one.
func (f *finder) expression(change string, start, end token.Pos, text string) {
	for up := 0; ; up++ {
		switch n := f.parent(up).(type) {
		case nil:
			return
		case *ast.BinaryExpr:
			if _, ok := comparisons[n.Op]; ok || n.Op == token.LAND || n.Op == token.LOR {
				f.add(change, start, end, text, f.host(boolean, n))
				return
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				f.add(change, start, end, text, f.host(boolean, n))
				return
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				if h, ok := f.define(n); ok && f.isListedAt(n, up+1) {
					f.add(change, start, end, text, h)
				}
				return
			}
			f.listed(change, start, end, text, n, up)
			return
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			return
		case ast.Stmt:
			f.listed(change, start, end, text, n, up)
			return
		}
	}
}

// listed adds a change whose host is a statement, up levels from the node that is visited.
func (f *finder) listed(change string, start, end token.Pos, text string, n ast.Stmt, up int) {
	switch n.(type) {
	case *ast.AssignStmt, *ast.IncDecStmt, *ast.ExprStmt, *ast.ReturnStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		if f.isListedAt(n, up+1) {
			f.add(change, start, end, text, f.host(statement, n))
		}
	}
}

// define is the host of a change in x := value. The value is evaluated a second time, so it must not call anything.
func (f *finder) define(n *ast.AssignStmt) (host, bool) {
	x, ok := n.Lhs[0].(*ast.Ident)
	if !ok || len(n.Lhs) != 1 {
		return host{}, false
	}
	harmless := true
	ast.Inspect(n.Rhs[0], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			harmless = harmless && (isCallOf(n, "len") || isCallOf(n, "min") || isCallOf(n, "max"))
		case *ast.UnaryExpr:
			harmless = harmless && n.Op != token.ARROW
		case *ast.Ident:
			harmless = harmless && n.Name != x.Name
		}
		return harmless
	})
	h := f.host(define, n)
	h.name = x.Name
	return h, harmless
}

func (f *finder) host(kind hostKind, n ast.Node) host {
	return host{kind: kind, start: f.file.Offset(n.Pos()), end: f.file.Offset(n.End())}
}

func (f *finder) add(change string, start, end token.Pos, text string, h host) {
	inFunction := slices.ContainsFunc(f.around, func(n ast.Node) bool {
		_, block := n.(*ast.BlockStmt)
		return block
	})
	if inFunction {
		f.found = append(f.found, &mutant{file: f.source, change: change,
			start: f.file.Offset(start), end: f.file.Offset(end), text: text, host: h})
	}
}

func (f *finder) textOf(n ast.Node) string {
	return string(f.source.text[f.file.Offset(n.Pos()):f.file.Offset(n.End())])
}
