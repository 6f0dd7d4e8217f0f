// Reads a source of a Loom directory through DuckDB's JDBC driver: rows in their order, a prepared statement, an error.
// Usage: java -cp duckdb_jdbc.jar Reads.java EXTENSION DIRECTORY SOURCE

import java.math.BigInteger;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;

public class Reads {
    public static void main(String[] given) throws SQLException {
        Properties options = new Properties();
        options.setProperty("allow_unsigned_extensions", "true");
        try (Connection connection = DriverManager.getConnection("jdbc:duckdb:", options);
                Statement statement = connection.createStatement()) {
            statement.execute("LOAD '" + given[0] + "'");
            String scan = "loom_scan('" + given[1] + "', '" + given[2] + "')";
            long rows = 0;
            BigInteger sum = BigInteger.ZERO;
            try (ResultSet result = statement.executeQuery("SELECT source, ts, n, big, word, raw FROM " + scan)) {
                while (result.next()) {
                    check(result.getString(1).equals(given[2]), "source");
                    check(result.getTimestamp(2) != null, "ts");
                    check(result.getLong(3) == rows, "order");
                    sum = sum.add(new BigInteger(result.getString(4)));
                    check(result.getString(5) == null || result.getString(5).equals("word " + rows % 7), "word");
                    check(result.getBlob(6).length() == 3, "raw");
                    rows++;
                }
            }
            String summed = value(statement, "SELECT sum(big)::VARCHAR FROM " + scan);
            check(summed.equals(sum.toString()), "sum " + sum + ", not " + summed);
            String counted = value(statement, "SELECT count FROM loom_aggregate('" + given[1] + "', '" + given[2] + "', 'n')");
            check(counted.equals(Long.toString(rows)), "count " + counted);
            try (PreparedStatement prepared = connection.prepareStatement("SELECT count(n) FROM " + scan + " WHERE n < ?")) {
                for (long below : new long[] {10, 1000}) {
                    prepared.setLong(1, below);
                    try (ResultSet result = prepared.executeQuery()) {
                        result.next();
                        check(result.getLong(1) == below, "prepared");
                    }
                }
            }
            // The driver closes a statement that fails.
            try (Statement failing = connection.createStatement()) {
                value(failing, "SELECT count(*) FROM loom_scan('" + given[1] + "', 'no such')");
                throw new AssertionError("no error");
            } catch (SQLException error) {
                check(error.getMessage().contains("no such"), error.getMessage());
            }
            System.out.println("DuckDB " + value(statement, "SELECT version()") + ": " + rows + " rows, all as they were written");
        }
    }

    static String value(Statement statement, String sql) throws SQLException {
        try (ResultSet result = statement.executeQuery(sql)) {
            result.next();
            return result.getString(1);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
