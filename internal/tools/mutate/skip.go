package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// printing are the methods that write a line to a log.
var printing = []string{"Info", "Error", "InfoS", "ErrorS", "Flush"}

// skipped says what to leave alone, with all that it holds: log lines, the texts of panics and errors, and what only
// prints.
func skipped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return n.Body == nil || n.Name.Name == "String"
	case *ast.GenDecl:
		return n.Tok == token.CONST || n.Tok == token.TYPE || n.Tok == token.IMPORT
	case *ast.ExprStmt:
		return isCallOf(n.X, "panic") || skipped(n.X)
	case *ast.DeferStmt:
		return skipped(n.Call)
	case *ast.CallExpr:
		if isCallOf(n, "panic") {
			return true
		}
		called, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if slices.Contains([]string{"lock", "unlock", "rlock", "runlock"}, strings.ToLower(called.Sel.Name)) {
			return true
		}
		on := strings.ToLower(lastName(called.X))
		return on == "fmt" || on == "errors" && called.Sel.Name == "New" ||
			slices.Contains([]string{"log", "logger", "klog", "v"}, on) && slices.Contains(printing, called.Sel.Name)
	}
	return false
}

func isCallOf(e ast.Expr, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == name
}

// lastName is c for a.b.c, and V for log.V(4).
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	}
	return ""
}
