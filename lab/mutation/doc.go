// Command mutation changes one operator or statement of a package after the
// other and reports which changes no test notices.
//
// All mutants of a package are compiled into one test binary, and MUTANT chooses
// one of them by its number. Each test is run once to record the mutants that it
// reaches; a mutant is then given to the tests that reach it, quick ones first. It
// is killed when one of them fails or does not end, it has lived when all pass, and
// no test covers it when none reaches it.
//
//	mutation [-tests ./a,./b] [-run regexp] [-at regexp] [-statements] [-sample n] ./package
//
// The package, and the packages of the tests, are of the working folder's module.
package main
